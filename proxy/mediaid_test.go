package proxy_test

import (
	"fmt"
	"testing"

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
