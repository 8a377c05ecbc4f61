package proxy_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/router"
	"xpyd/sim"
)

// An image that a request names only by its uuid is in the caches of the engines that have had it whole.
func TestImageByUUIDGoesWhereItIsKnown(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 3, decode: 3, router: inTurn})
	ask := func(id, image string) {
		a := r.post("/v1/chat/completions", `{"model":"sim","max_tokens":2,"messages":[{"role":"user","content":[{"type":"text","text":"`+id+`"},`+
			image+`]}]}`, "X-Request-Id", id)
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	leg := func(engines []*sim.Engine, id string) (name string) {
		r.await("the record of "+id, func() bool {
			for _, e := range engines {
				for _, rec := range e.Requests() {
					if len(rec.RequestID) > len(id) && rec.RequestID[:len(id)+1] == id+"-" {
						name = e.Name()
					}
				}
			}
			return name != ""
		})
		return name
	}
	const whole = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="},"uuid":"cat"}`
	ask("first", whole)
	p, d := leg(r.prefill, "first"), leg(r.decode, "first")
	for i, image := range []string{
		`{"type":"image_url","image_url":null,"uuid":"cat"}`,
		`{"type":"image_url","uuid":"\u0063at"}`,
		`{"type":"image_url","image_url":{ },"uuid":"cat"}`,
	} {
		id := fmt.Sprintf("again%d", i)
		ask(id, image)
		if gotP, gotD := leg(r.prefill, id), leg(r.decode, id); gotP != p || gotD != d {
			t.Errorf("%s went to %s and %s, which have not seen the image; %s and %s have", image, gotP, gotD, p, d)
		}
	}
	ask("other", `{"type":"image_url","uuid":"nobody has seen it"}`) // an engine says so itself
}

// While the only decode engine that has had the image is full, a request waits for it: the others would refuse it. While
// that engine is down, another one says so itself.
func TestImageByUUIDWaitsWhereItIsKnown(t *testing.T) {
	var held atomic.Pointer[barrier]
	r := newRig(t, rigOptions{decode: 2,
		engine: func(o *sim.Options) {
			o.Hook = func(e sim.Event) {
				if b := held.Load(); b != nil {
					b.hook(e)
				}
			}
		},
		router: func(c *router.Config) {
			inTurn(c)
			c.DecodeMaxInFlight, c.Queue = 1, router.Line{Length: 9, Wait: time.Minute}
			c.Health.EjectAfter = 0
		},
	})
	ask := func(image string) answer {
		return r.post("/v1/chat/completions", `{"model":"sim","max_tokens":2,"messages":[{"role":"user","content":[`+image+`]}]}`)
	}
	const byID = `{"type":"image_url","uuid":"cat"}`
	if a := ask(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="},"uuid":"cat"}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	b := newBarrier(sim.PhaseDecodeReceived, 0)
	held.Store(b)
	t.Cleanup(b.open)
	got := make(chan answer, 2)
	go func() { got <- ask(byID) }()
	<-b.reached
	go func() { got <- ask(byID) }()
	r.await("the second one waits, or is answered", func() bool { return len(got) > 0 || r.metric(`xpyd_queued{role="decode"}`) == 1 })
	if len(got) > 0 {
		t.Error("a decode engine was asked that has not had the image")
	}
	b.open()
	for range 2 {
		if a := r.soon(got); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	knows := r.decode[0]
	if len(knows.Requests()) == 0 {
		knows = r.decode[1]
	}
	if n := len(r.decode[0].Requests()) * len(r.decode[1].Requests()); n != 0 {
		t.Error("both decode engines were asked")
	}
	knows.Kill()
	r.await("it is down", func() bool { return r.metric(`xpyd_backend_up{backend="`+knows.URL()) == 0 })
	if a := ask(byID); a.status != 200 { // a sim takes it
		t.Errorf("%d %s, want the answer of the other decode engine", a.status, a.body)
	}
}
