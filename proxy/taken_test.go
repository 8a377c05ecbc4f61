package proxy_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// A decode engine that has the whole of a request may have its blocks already, where prefill writes them. Another engine
// would wait for them without a limit, and keep blocks of its own for that. So none is asked.
func eachTaken(t *testing.T, test func(t *testing.T, d kvparams.Dialect)) {
	t.Helper()
	eachConnectorThat(t, func(d kvparams.Dialect) bool { return d.Reclaim() == kvparams.ReclaimDrain }, test)
}

// expectTaken looks at engines of which each request with a handle has had one decode leg, that has its blocks.
func (r *rig) expectTaken(handles int) {
	r.t.Helper()
	r.await("handles burnt", func() bool { return r.metric(`xpyd_kv_handles_total{end="burnt"`) == float64(handles) })
	if n := len(legs(r.decode, "decode")); n != handles {
		r.t.Errorf("%d requests at the decode engines, want %d", n, handles)
	}
	if n := r.metric("xpyd_kv_orphans_total"); n != 0 {
		r.t.Errorf("%v orphans, and nothing waits for a lease", n)
	}
	if n := r.moved(); n != handles {
		r.t.Errorf("the blocks of %d prefills have moved, want %d", n, handles)
	}
	r.expectNothingHeld()
	r.expectNoneUsed()
}

func TestNoDrainAfterADecodeThatWasTooSlow(t *testing.T) {
	eachTaken(t, func(t *testing.T, d kvparams.Dialect) {
		b := newBarrier(sim.PhaseDecodeLoaded, 0)
		r := newRig(t, rigOptions{decode: 2, dialect: d, config: func(c *proxy.Config) { c.Timeouts.FirstEvent = 4 * time.Second },
			engine: func(o *sim.Options) { o.Hook = b.hook }})
		t.Cleanup(b.open)
		got := r.start(forms(prompt, 5)[0])
		r.reached(b)
		if a := r.soon(got); a.status != 504 || a.code() != "decode_timeout" {
			t.Errorf("%d %s", a.status, a.body)
		}
		r.await("an end of the handle", func() bool { return r.metric("xpyd_kv_blocks_pinned") == 0 })
		b.open()
		r.expectTaken(1)
	})
}

// The engine breaks its answer off, and lives.
func TestNoDrainAfterADecodeThatBrokeOff(t *testing.T) {
	eachTaken(t, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{decode: 2, dialect: d, router: inTurn})
		c := forms(prompt+"[[decode-0:truncate@10]]", 5)[0]
		for handles := 0; handles < 3; { // the first or the second request meets decode-0
			r.expectWhole(c, r.call(c))
			handles = int(r.metric(`xpyd_kv_handles_issued_total`))
		}
		r.await("ended", func() bool { return r.metric("xpyd_kv_blocks_pinned") == 0 })
		r.expectTaken(int(r.metric(`xpyd_kv_handles_issued_total`)))
	})
}

// The client has left, and the engine dies while it may still load the blocks. Nothing will read them.
func TestADecodeThatDiesHasNotUsedItsHandle(t *testing.T) {
	eachTaken(t, func(t *testing.T, d kvparams.Dialect) {
		b := newBarrier(sim.PhaseDecodeReceived, 0)
		patient := func(r *rig) { r.server.WaitForSuspects() } // the question whether the engine lives has 250 ms otherwise
		r := newRig(t, rigOptions{dialect: d, before: patient, engine: func(o *sim.Options) { o.Hook = b.hook }})
		t.Cleanup(b.open)
		conn := r.dialRaw()
		_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
		r.reached(b)
		_ = conn.Close()
		r.await("aware that the client left", func() bool { return r.server.Departed() == 1 })
		r.decode[0].Kill()
		r.await("an end of the handle", func() bool {
			return r.metric(`xpyd_kv_handles_issued_total`) == 1 && r.metric("xpyd_kv_blocks_pinned") == 0
		})
		if n := r.metric(`xpyd_kv_handles_total{end="lost"`); n != 1 {
			t.Errorf("%v handles lost, want the one that nobody has read", n)
		}
		if n := r.metric(`xpyd_kv_orphans_total{reason="connector"`); n != 1 {
			t.Errorf("%v orphans, want 1", n)
		}
	})
}

// The engine that drains a handle breaks off, and has the blocks.
func TestOneDrainOfPushedBlocks(t *testing.T) {
	eachTaken(t, func(t *testing.T, d kvparams.Dialect) {
		b := newBarrier(sim.PhasePrefillEnding, 0)
		r := newRig(t, rigOptions{decode: 2, dialect: d, engine: func(o *sim.Options) { o.Hook = b.hook }})
		t.Cleanup(b.open)
		f, err := sim.ParseFault("truncate@10")
		if err != nil {
			t.Fatal(err)
		}
		f.Count = 1
		for _, e := range r.decode {
			if err := e.SetFault(f); err != nil {
				t.Fatal(err)
			}
		}
		conn := r.dialRaw()
		_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
		r.reached(b)
		_ = conn.Close()
		r.await("aware that the client left", func() bool { return r.server.Departed() == 1 })
		b.open()
		r.await("an end of the handle", func() bool {
			return r.metric(`xpyd_kv_handles_issued_total`) == 1 && r.metric("xpyd_kv_blocks_pinned") == 0
		})
		r.expectTaken(1)
	})
}

// meets503 has a request meet a decode engine's address that answers 503 with that body, and returns how many handles were
// drained, and how many were lost, when the first has ended.
func meets503(t *testing.T, d kvparams.Dialect, body string) (drained, lost float64) {
	front := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, body)
	})
	r := newRig(t, rigOptions{decode: 2, dialect: d, router: func(c *router.Config) {
		inTurn(c)
		c.Decode[0].URL = front.server.URL
	}})
	c := forms(prompt, 5)[0]
	for r.metric(`xpyd_leg_requests_total{backend="`+front.server.URL) == 0 { // the first or the second request meets it
		r.expectWhole(c, r.call(c))
	}
	r.await("an end of the handle", func() bool {
		drained, lost = r.metric(`xpyd_kv_handles_total{end="drained"`), r.metric(`xpyd_kv_orphans_total{reason="connector"`)
		return drained+lost > 0
	})
	return drained, lost
}

// What stands in front of an engine answers 503 itself, also if the connection to the engine broke after the engine had the
// request. Only a 503 in the engine's own words says that it has registered nothing.
func TestNoDrainAfterA503OfAnother(t *testing.T) {
	eachTaken(t, func(t *testing.T, d kvparams.Dialect) {
		for _, body := range []string{
			"upstream connect error or disconnect/reset before headers. reset reason: connection termination",
			`{"error":"Service Unavailable","path":"/v1/completions","status":503}`,                               // Spring
			`{"error":{"code":503,"message":"upstream reset before headers","status":"UNAVAILABLE"}}`,             // Google
			`{"error":{"message":"No server is available","type":"service_unavailable","param":null,"code":503}}`, // gateways that speak OpenAI's API
			`{"error":{"message":"try again","type":"Service Unavailable","param":null,"code":"503"}}`,
			`{"ERROR":"The model is currently scaling. Please try again later."}`,
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, // Anthropic's
			`{"error":null,"message":"upstream reset"}`, `{"error":{}}`, `null`, ``,
		} {
			if drained, _ := meets503(t, d, body); drained != 0 {
				t.Errorf("%v handles drained after %s", drained, body)
			}
		}
	})
}

// The 503 with which vLLM refuses a completion, word for word; the last one is that of /v1/messages.
func TestARefusalOfVLLMIsDrained(t *testing.T) {
	eachTaken(t, func(t *testing.T, d kvparams.Dialect) {
		for _, body := range []string{
			`{"error":"The model is currently scaling. Please try again later."}`,
			`{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}`,
			`{"type":"error","error":{"type":"Service Unavailable","message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."}}`,
		} {
			if drained, lost := meets503(t, d, body); drained == 0 || lost != 0 {
				t.Errorf("%v handles drained, %v lost after %s", drained, lost, body)
			}
		}
	})
}

// A request that the engine refused has registered nothing. The blocks are drained, by the same engine or another one.
func TestARefusedHandleIsDrained(t *testing.T) {
	eachTaken(t, func(t *testing.T, d kvparams.Dialect) {
		for _, status := range []string{"400", "429", "503"} {
			r := newRig(t, rigOptions{decode: 2, dialect: d})
			f, err := sim.ParseFault("status=" + status)
			if err != nil {
				t.Fatal(err)
			}
			f.Count = 1
			for _, e := range r.decode {
				if err := e.SetFault(f); err != nil {
					t.Fatal(err)
				}
			}
			r.call(forms(prompt, 5)[0])
			r.await("drained", func() bool { return r.metric(`xpyd_kv_handles_total{end="drained"`) > 0 })
			r.expectNothingHeld()
			r.expectNoneUsed()
		}
	})
}
