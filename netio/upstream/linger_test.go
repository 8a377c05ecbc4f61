package upstream

import (
	"testing"
	"time"
)

// A panic behind a leg that was given up is heard, ends no process, and its connection is closed.
func TestLingerRecovers(t *testing.T) {
	s := newScripted(t, func(int) (string, bool) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", true
	})
	var x Exchange
	if err := x.Do(s.client(), post("{}"), time.Now().Add(time.Minute), true); err != nil {
		t.Fatal(err)
	}
	heard := make(chan any, 1)
	guard := func(f func()) bool {
		defer func() { heard <- recover() }()
		f()
		return true
	}
	x.Linger(&Error{Stage: StageBody}, time.Minute, guard, func() { panic("planted") })
	if p := <-heard; p != "planted" {
		t.Errorf("heard %v", p)
	}
}
