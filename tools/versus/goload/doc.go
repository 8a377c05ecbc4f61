// Package goload is clients and engines with a goroutine for each connection, blocking reads and
// deadlines, as most programs in Go are written. Their goroutines sleep between events, as users'
// clients and engines do, so a proxy under this load sleeps and wakes too.
//
// It knows nothing of what the bytes mean: the caller gives it requests, answers, and what takes
// answers apart. It has no HTTP library, whose CPU would be most of what is seen on a small machine.
package goload
