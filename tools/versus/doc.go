// Package versus measures what a proxy costs in comparison with others at the same work: CPU of a
// request and of an event, memory of a stream, added delay.
//
// This process is the client and the engines, of two kinds in turn. Two threads over epoll write
// canned bytes, so that nearly the whole machine is left to the proxy, and keep it busy. A goroutine
// for each connection (goload) sleeps between events, as users' programs do, so that the proxy
// sleeps and wakes too. A bar is judged on the worse of the two.
//
// Each proxy is a process of its own, started again for each measurement. Contenders take turns,
// round by round, so that other load on the machine affects them all.
package versus
