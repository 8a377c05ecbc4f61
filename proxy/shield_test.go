package proxy_test

import (
	"io"
	"net/http"
	"testing"
)

type panicWriter struct{}

func (panicWriter) Write([]byte) (int, error) { panic("BUG: planted by a test") }

// fasthttp writes answers after the handler. A panic there breaks off one answer, and the process goes on.
func TestPanicWhileAnAnswerIsWritten(t *testing.T) {
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "application/json")
		fill(w, 4*answerLimit)
	})
	r := newRig(t, rigOptions{prefill: -1, config: smallAnswers, router: d.asDecode, before: func(r *rig) { r.server.PanicOnBuffer(1) }})
	a := r.send(http.MethodPost, "/tokenize", forms(prompt, 4)[0].body())
	if a.err == nil {
		t.Errorf("%d with %d bytes, want it broken off", a.status, len(a.body))
	}
	if err := r.server.WriteHeld(panicWriter{}); err == nil {
		t.Error("a held answer counts as written")
	}
	if a = r.send(http.MethodPost, "/tokenize", forms(prompt, 4)[0].body()); a.status != 200 || a.err != nil || len(a.body) != 4*answerLimit {
		t.Errorf("the next one: %d, %d bytes, %v", a.status, len(a.body), a.err)
	}
	if n := r.metric("xpyd_panics_total"); n != 2 {
		t.Errorf("%v panics counted, want 2", n)
	}
	r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
}
