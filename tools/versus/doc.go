// Package versus measures what a proxy costs beside others at the same work: CPU of a
// request and of an event, memory of a stream, added delay.
//
// This process is the client and the engines: two threads over epoll that write canned
// bytes, so that nearly all of the machine is the proxy's. Each proxy is a process of
// its own, started afresh for each measurement; contenders take turns, round by round,
// so that what else the machine does meets them all.
package versus
