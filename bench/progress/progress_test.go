package progress

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLines: without a terminal a line comes now and then, and one at the end.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := New(&out, false, 40)
		for i := range 24 {
			time.Sleep(250 * time.Millisecond)
			m.Add(i%4 != 0)
		}
		m.Close()
		want := "20/40 requests: 15 completed, 5 failed, 4.00 req/s, 5s left\n24/40 requests: 18 completed, 6 failed, 4.00 req/s, 4s left\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// TestUnknownTotal: without a total no line says how much is left.
func TestUnknownTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := New(&out, false, 0)
		time.Sleep(time.Second)
		m.Add(true)
		m.Close()
		if want := "1 requests: 1 completed, 0 failed, 1.00 req/s\n"; out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// TestBar: on a terminal the bar shows failures at once.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	m := New(&out, true, 3)
	for _, ok := range []bool{true, false, true} {
		m.Add(ok)
	}
	m.Close()
	if got := out.String(); !strings.Contains(got, "2 completed, 1 failed 100%") || !strings.Contains(got, "(3/3") {
		t.Errorf("%q", got)
	}
}

// TestSay: a line does not end up inside the bar, and the bar goes on after it.
func TestSay(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var out bytes.Buffer
		m := New(&out, terminal, 2)
		m.Add(true)
		m.Say("Engine 000: Running: 1 reqs")
		m.Add(true)
		m.Close()
		before, after, ok := strings.Cut(out.String(), "Engine 000: Running: 1 reqs\n")
		if !ok || !strings.Contains(after, "2/2") || terminal && !strings.HasSuffix(before, "\r") {
			t.Errorf("%q", out.String())
		}
	}
}
