package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// A decode engine dies if a handle has blocks for less than its prompt. The metrics say how much an
// engine's blocks hold.
func TestHandleOfTooFewBlocksKillsNoDecode(t *testing.T) {
	together(t)
	for _, kind := range []string{"few-blocks", "few-tokens"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: 2, decode: 3, router: func(c *router.Config) {
				inTurn(c)
				c.Routing.Poll = 5 * time.Millisecond
			}})
			r.await("aware of the blocks' size", func() bool { return strings.Count(r.adminText("/backends"), `"block_size": 16`) == 5 })
			if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: kind, Leg: "P"}); err != nil {
				t.Fatal(err)
			}
			c := forms(strings.Repeat(prompt, 20), 4)[1]
			for range 8 {
				r.expectWhole(c, r.call(c))
			}
			if n := deadOf(r.decode); n > 0 {
				t.Errorf("%d of 3 decode engines died of a handle", n)
			}
			if r.metric(`xpyd_kv_orphans_total{reason="unusable_handle"}`) == 0 {
				t.Error("no handle was refused: the test proves nothing")
			}
			if n := len(legs(r.decode, "decode")); n != 8 {
				t.Errorf("%d requests with a handle reached decode, want 8", n)
			}
		})
	}
}

// It is not known how much a block holds, so the handle costs one decode engine. The second round
// does not cost another one.
func TestPrefillWhoseHandleCostADecodeIsNotAskedAgain(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name    string
		prefill int
		path    string
	}{
		{"another prefill engine", 2, "disaggregated"},
		{"no other", 1, "decode_only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: tc.prefill, decode: 3, router: inTurn})
			if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: "few-blocks", Leg: "P"}); err != nil {
				t.Fatal(err)
			}
			c := forms(strings.Repeat(prompt, 20), 4)[1]
			a := r.call(c)
			for range 2 {
				if deadOf(r.decode) == 1 {
					break
				}
				a = r.call(c) // the first went to the sound prefill engine
			}
			r.expectWhole(c, a)
			if got := a.header.Get("X-Xpyd-Path"); got != tc.path {
				t.Errorf("path %s, want %s", got, tc.path)
			}
			if n := deadOf(r.decode); n != 1 {
				t.Errorf("%d of 3 decode engines died of one request, want 1", n)
			}
		})
	}
}

// If decode may not prefill, the only prefill engine is asked again, because decode has more likely
// failed by itself.
func TestOnlyPrefillIsAskedAgainWhereDecodeMayNotPrefill(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, router: inTurn, config: func(c *proxy.Config) { c.DecodeOnly.Enabled = false }})
	for _, kind := range []string{sim.FaultRST, sim.FaultKVFail} {
		if err := r.decode[0].SetFault(sim.Fault{Kind: kind, Leg: "D", Count: 1}); err != nil {
			t.Fatal(err)
		}
		c := forms(prompt, 4)[0]
		for range 2 {
			r.expectWhole(c, r.call(c))
		}
	}
	if n := len(legs(r.prefill, "prefill")); n != 6 {
		t.Errorf("%d prefills of 4 requests, two of which failed on decode: want 6", n)
	}
	r.expectNothingHeld()
}

// mute is the URL of an engine behind something that hides its metrics.
func mute(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	engine := httputil.NewSingleHostReverseProxy(u)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/metrics" {
			http.NotFound(w, q)
			return
		}
		engine.ServeHTTP(w, q)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// The metrics of a prefill engine do not name the size of its blocks. Those of decode do, or handles that were used show it.
func TestShortHandleOfAPrefillWithoutMetrics(t *testing.T) {
	together(t)
	long := forms(strings.Repeat(prompt, 20), 4)
	for name, tt := range map[string]struct {
		poll time.Duration
		use  []call // before its handles are short
	}{
		"only decode's tell":       {poll: 5 * time.Millisecond},
		"one handle was used":      {use: long[:1]},
		"a shorter one was used":   {use: forms(prompt, 4)[:1]},
		"a streamed chat was used": {use: long[3:]},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{decode: 3, router: func(c *router.Config) {
				inTurn(c)
				c.Routing.Poll, c.Prefill[0].URL = tt.poll, mute(t, c.Prefill[0].URL)
			}})
			if tt.poll > 0 {
				r.await("aware of the blocks' size", func() bool { return strings.Count(r.adminText("/backends"), `"block_size": 16`) == 3 })
			}
			for _, c := range tt.use {
				r.expectWhole(c, r.call(c))
			}
			if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: "few-blocks", Leg: "P"}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, c := range long {
					r.expectWhole(c, r.call(c))
				}
			}
			if n := deadOf(r.decode); n > 0 {
				t.Errorf("%d of 3 decode engines died of a handle", n)
			}
			if r.metric(`xpyd_kv_orphans_total{reason="unusable_handle"}`) == 0 {
				t.Error("no handle was refused: the test proves nothing")
			}
		})
	}
}

// Nothing is known of the blocks, and decode may not prefill. A decode engine that dies of the handle is the only one.
func TestPrefillWhoseHandleCostADecodeIsBurnt(t *testing.T) {
	r := newRig(t, rigOptions{decode: 3, router: inTurn, config: func(c *proxy.Config) { c.DecodeOnly.Enabled = false }})
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: "few-blocks", Leg: "P"}); err != nil {
		t.Fatal(err)
	}
	a := r.call(forms(strings.Repeat(prompt, 20), 4)[0])
	if a.status != 502 || a.code() != "decode_failed" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := deadOf(r.decode); n != 1 {
		t.Errorf("%d of 3 decode engines died of one request, want 1", n)
	}
}
