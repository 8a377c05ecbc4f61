package proxy_test

import (
	"strings"
	"testing"

	"xpyd/router"
	"xpyd/sim"
)

// An engine has lost the blocks of a chat. With its events xpyd knows that before the next turn, and without them it
// expects what is not there.
func TestEventsReachTheEstimate(t *testing.T) {
	together(t)
	for _, events := range []bool{true, false} {
		t.Run(map[bool]string{true: "events", false: "estimated"}[events], func(t *testing.T) {
			var p *sim.Engine
			r := newRig(t, rigOptions{prefill: 1, decode: 1, router: func(c *router.Config) {
				p = announcing(t)
				at, again := p.KVEvents()
				entry := p.URL()
				if events {
					entry += " kv_events=tcp://" + at + " kv_replay=tcp://" + again
				}
				c.Prefill = router.MustEntries(entry)
				c.PrefillPolicy, c.Routing.PrefixMemory = "prefix", 4<<20
			}})
			if events {
				r.await("events come", func() bool { return r.metric("xpyd_kv_events_up{") == 1 })
			}
			body := chatBody(strings.Repeat("A long message. ", 400))
			if a := r.post("/v1/chat/completions", body); a.status != 200 {
				t.Fatal(a.status, a.body)
			}
			if events {
				r.await("the prompt's blocks are found", func() bool { return r.metric("xpyd_kv_events_learned_total{") == 1 })
			}
			r.await("nothing is pinned", func() bool { return p.Used() == 0 })
			p.Evict(p.Cached())
			if events {
				r.await("no block is left", func() bool { return r.metric("xpyd_kv_events_blocks{") == 0 })
			}
			if a := r.post("/v1/chat/completions", body); a.status != 200 {
				t.Fatal(a.status, a.body)
			}
			over := r.metric(`xpyd_prefix_estimate_error_tokens_total{backend="` + p.URL() + `",role="prefill",side="over"}`)
			if told := r.metric("xpyd_prefix_estimate_told_tokens_total{"); told < 2000 || (over > 0) == events {
				t.Errorf("%v of %v tokens were expected and not there", over, told)
			}
		})
	}
}

// announcing is a prefill engine that publishes KV events.
func announcing(t *testing.T) *sim.Engine {
	p, err := sim.Start(sim.Options{Role: sim.RolePrefill}.Fast())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.Announce("127.0.0.1:0", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	return p
}
