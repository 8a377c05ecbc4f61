package upstream

import (
	"errors"
	"testing"
	"time"
)

// The earliest moment of a cause stays, and the earliest of all causes holds.
func TestEarliestCutHolds(t *testing.T) {
	type cut struct {
		why Cause
		at  int // minutes from now; 0 takes the cause back
	}
	for name, tc := range map[string]struct {
		cuts []cut
		by   Cause
		at   int
	}{
		"none":                     {},
		"one":                      {[]cut{{1, 5}}, 1, 5},
		"a cause comes nearer":     {[]cut{{1, 5}, {1, 3}}, 1, 3},
		"a cause is not put off":   {[]cut{{1, 3}, {1, 5}}, 1, 3},
		"the nearer of two":        {[]cut{{1, 5}, {7, 3}}, 7, 3},
		"the nearer came first":    {[]cut{{7, 3}, {1, 5}}, 7, 3},
		"taken back":               {[]cut{{1, 5}, {1, 0}}, 0, 0},
		"taken back, and cut anew": {[]cut{{1, 3}, {1, 0}, {1, 5}}, 1, 5},
		"the other stays":          {[]cut{{2, 3}, {1, 5}, {2, 0}}, 1, 5},
		"the later is taken back":  {[]cut{{2, 3}, {1, 5}, {1, 0}}, 2, 3},
		"what never was":           {[]cut{{2, 3}, {1, 0}}, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			var x Exchange
			for _, c := range tc.cuts {
				if c.at == 0 {
					x.Uncut(c.why)
					continue
				}
				x.Cut(c.why, now.Add(time.Duration(c.at)*time.Minute))
			}
			if x.CutBy() != tc.by || tc.by != 0 && (!x.IsCut(tc.by) || x.cuts.first != now.Add(time.Duration(tc.at)*time.Minute)) {
				t.Errorf("cut by %d: %+v, want by %d in %d minutes", x.CutBy(), x.cuts, tc.by, tc.at)
			}
			if x.Reset(); x.cuts != nil {
				t.Error("a cut is in force after Reset")
			}
		})
	}
}

// silent is an exchange whose request gets no answer, and the end of the wait for it.
func silent(t *testing.T, deadline time.Duration, end time.Time) (*Exchange, chan error) {
	t.Helper()
	goOn := make(chan bool)
	t.Cleanup(func() { close(goOn) })
	s := newScripted(t, func(int) (string, bool) { <-goOn; return "", true })
	x, done := &Exchange{}, make(chan error, 1)
	req := post("{}")
	req.End = end
	u := s.client()
	go func() { done <- x.Do(u, req, time.Now().Add(deadline), false) }()
	select {
	case <-s.seen:
	case err := <-done: // the deadline was over before the request was sent
		done <- err
	}
	return x, done
}

// causeOf is the cause that a timeout carries.
func causeOf(t *testing.T, err error) Cause {
	t.Helper()
	var ue *Error
	if !errors.As(err, &ue) || !ue.TimedOut() {
		t.Fatalf("error %v, want a timeout", err)
	}
	return ue.Cause
}

func TestFailureCarriesTheCauseThatCut(t *testing.T) {
	soon, never := 20*time.Millisecond, time.Hour
	for name, tc := range map[string]struct {
		deadline time.Duration
		end      time.Duration // of the request; 0 for none
		cut      func(x *Exchange)
		want     Cause
	}{
		"no cut":                       {deadline: soon, cut: func(*Exchange) {}},
		"the end of the request":       {deadline: never, end: soon, cut: func(*Exchange) {}},
		"one of two":                   {deadline: never, cut: func(x *Exchange) { x.Cut(1, time.Now().Add(never)); x.Cut(2, time.Now()) }, want: 2},
		"in place of the deadline":     {deadline: never, cut: func(x *Exchange) { x.Cut(4, time.Now().Add(soon)) }, want: 4},
		"the one that stays":           {deadline: never, cut: func(x *Exchange) { x.Cut(2, time.Now().Add(never)); x.Cut(1, time.Now().Add(soon)); x.Uncut(2) }, want: 1},
		"the deadline after all":       {deadline: 200 * time.Millisecond, cut: func(x *Exchange) { x.Cut(2, time.Now().Add(never)); x.Uncut(2) }},
		"the end of the request again": {deadline: never, end: 200 * time.Millisecond, cut: func(x *Exchange) { x.Cut(2, time.Now().Add(never)); x.Uncut(2) }},
	} {
		t.Run(name, func(t *testing.T) {
			var end time.Time
			if tc.end > 0 {
				end = time.Now().Add(tc.end)
			}
			x, done := silent(t, tc.deadline, end)
			tc.cut(x)
			if got := causeOf(t, <-done); got != tc.want {
				t.Errorf("cause %d, want %d", got, tc.want)
			}
			x.Reset()
		})
	}
}

// A cut holds for requests that follow, and what is cut is not sent once more.
func TestCutHoldsForTheNextRequest(t *testing.T) {
	s := newScripted(t, func(int) (string, bool) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false
	})
	u := s.client()
	var x Exchange
	x.Cut(5, time.Now())
	if got := causeOf(t, x.Do(u, post("{}"), time.Now().Add(time.Minute), true)); got != 5 {
		t.Errorf("cause %d, want 5", got)
	}
	x.Drop()
	x.Uncut(5)
	if err := x.Do(u, post("{}"), time.Now().Add(time.Minute), true); err != nil {
		t.Error(err)
	}
	x.Reset()
}

// An answer on its way is waited for beyond each deadline, and what cut the exchange is still known.
func TestExtendKeepsCauses(t *testing.T) {
	goOn := make(chan bool)
	s := newScripted(t, func(int) (string, bool) {
		<-goOn
		return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false
	})
	var x Exchange
	u, req, done := s.client(), post("{}"), make(chan error, 1)
	req.End = time.Now().Add(time.Minute)
	go func() { done <- x.Do(u, req, time.Now().Add(time.Minute), true) }()
	<-s.seen
	x.Cut(1, time.Now().Add(time.Hour))
	x.Cut(3, time.Now())
	if got := causeOf(t, <-done); got != 3 {
		t.Fatalf("cause %d, want 3", got)
	}
	x.end = time.Now().Add(-time.Second) // meanwhile
	x.Extend(6, time.Now().Add(time.Minute))
	if !x.IsCut(3) || !x.IsCut(1) || !x.IsCut(6) || x.IsCut(2) {
		t.Error("what cut the exchange is forgotten")
	}
	close(goOn)
	if err := x.ReadHead(); err != nil {
		t.Fatal(err)
	}
	x.Cut(2, time.Now()) // a nearer cut still holds
	if x.CutBy() != 2 {
		t.Errorf("cut by %d, want 2", x.CutBy())
	}
	x.Reset()
}

func TestCutsAllocateOnce(t *testing.T) {
	var x Exchange
	at := time.Now()
	if n := testing.AllocsPerRun(100, func() {
		x.Cut(1, at)
		x.Cut(2, at)
		_ = x.CutBy()
		x.Extend(3, at)
		x.Uncut(1, 2)
		x.Reset()
	}); n > 1 {
		t.Errorf("%v allocations, want that of the first cut", n)
	}
}
