package proxy_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// bomb is a log that panics at a completion's line, the last thing that a completion does before it
// tidies up.
type bomb struct{ io.Writer }

func (b bomb) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"message":"completion"`)) {
		panic("BUG: planted by a test")
	}
	return b.Writer.Write(p)
}

// A panic at the end of a completion costs only its log line. The client has its answer, the next
// request is served, everything is given back, and the completion is counted once.
func TestPanicAtTheEndOfACompletion(t *testing.T) {
	together(t)
	for _, c := range append(forms(prompt, 3), call{prompt: prompt, tokens: 3, more: `,"n":"x"`}) {
		t.Run(c.name()+c.more, func(t *testing.T) {
			r := newRig(t, rigOptions{log: func(w io.Writer) io.Writer { return bomb{w} }})
			for i := range 3 {
				a := r.call(c)
				if c.more != "" {
					if a.status != 400 {
						t.Fatalf("%d %s, want the 400 of a request that is none", a.status, a.body)
					}
				} else {
					r.expectWhole(c, a)
				}
				r.await("counted", func() bool { return r.metric("xpyd_panics_total") == float64(i+1) })
			}
			r.await("no completion left", func() bool { return r.server.Live() == 0 })
			r.expectNothingHeld()
			if !strings.Contains(r.logs.String(), "request handler panicked") {
				t.Errorf("the log does not tell: %s", r.logs)
			}
		})
	}
}

// A label that is missing is counted as another one, and ends no completion.
func TestLabelsThatNobodyRegistered(t *testing.T) {
	r := newRig(t, rigOptions{before: func(r *rig) { r.server.ForgetLabels() }})
	for _, c := range forms(prompt, 3) {
		r.expectWhole(c, r.call(c))
	}
	r.await("no completion left", func() bool { return r.server.Live() == 0 })
	r.expectNothingHeld()
	if n := r.metric("xpyd_panics_total"); n != 0 {
		t.Errorf("%v panics", n)
	}
	for _, series := range []string{`xpyd_requests_total{api="other",outcome="other"}`, `xpyd_decisions_total{path="other",reason="other"}`, `xpyd_kv_handles_total{end="other"}`} {
		if r.metric(series) == 0 {
			t.Errorf("%s is not counted\n%s", series, r.metricsText())
		}
	}
}
