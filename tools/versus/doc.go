// Package versus measures what a proxy costs in comparison with others at the same work: CPU of a
// request and of an event, memory of a stream, added delay.
//
// This process is the client and the engines: two threads over epoll that write canned bytes, so
// that nearly the whole machine is left to the proxy. Each proxy is a process of its own, started
// again for each measurement. Contenders take turns, round by round, so that other load on the
// machine affects them all.
package versus
