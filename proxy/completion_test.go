package proxy_test

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"xpyd/proxy"
	"xpyd/sim"
)

const prompt = "The quick brown fox jumps over the lazy dog, twice, and then looks back at you."

func TestCompletionThroughBothLegs(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, c := range forms(prompt, 12) {
		t.Run(c.name(), func(t *testing.T) {
			id := "hand-" + strings.ReplaceAll(c.name(), " ", "-")
			a := r.call(c, "X-Request-Id", id)
			r.expectWhole(c, a)
			if got := a.header.Get("X-Request-Id"); got != id {
				t.Errorf("X-Request-Id %q, want the client's own %q", got, id)
			}
			if got := a.header.Get("X-Xpyd-Path"); got != "disaggregated" {
				t.Errorf("path %q", got)
			}
			if a.header.Get("Cache-Control") != "no-store" || a.header.Get("Server") != "" {
				t.Errorf("headers %v", a.header)
			}
			p, d := r.record(r.prefill[0], id), r.record(r.decode[0], id)
			if !p.DoRemoteDecode || p.MaxTokens != 1 || p.Stream {
				t.Errorf("prefill leg %+v", p)
			}
			if !d.DoRemotePrefill || d.Leg != "decode" || fmt.Sprint(d.BlockIDs) != fmt.Sprint(p.BlockIDs) || len(d.BlockIDs) == 0 {
				t.Errorf("decode leg %+v, want the blocks %v", d, p.BlockIDs)
			}
			if p.RequestID != d.RequestID || !strings.HasPrefix(p.RequestID, id+"-") || len(p.RequestID) != len(id)+9 {
				t.Errorf("leg ids %q and %q, want one id made from %q", p.RequestID, d.RequestID, id)
			}
		})
	}
	r.expectNothingHeld()
	if n := r.prefill[0].Ledger().FreedBy["read"]; n != 4 {
		t.Errorf("%d prefills read, want 4", n)
	}
}

func TestEachRoundUsesBothPools(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, decode: 3})
	for range 2 {
		for _, c := range forms(prompt, 3) {
			r.expectWhole(c, r.call(c))
		}
	}
	for _, e := range append(r.prefill, r.decode...) {
		r.await("evenly used: "+e.Name(), func() bool { return len(e.Requests()) >= 2 })
	}
	r.expectNothingHeld()
}

func TestBodiesOnTheWire(t *testing.T) {
	r := newRig(t, rigOptions{})
	body := `{ "model":"sim", "seed":9007199254740993, "temperature":1.50, "prompt":"a\u00e9b", "max_tokens":2, "stream":false, "x":{"b":1,"a":2} }`
	if a := r.post("/v1/completions", body, "X-Request-Id", "wire"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	p, d := r.record(r.prefill[0], "wire"), r.record(r.decode[0], "wire")
	kept := `{ "model":"sim", "seed":9007199254740993, "temperature":1.50, "prompt":"a\u00e9b", "max_tokens":`
	if !strings.HasPrefix(string(p.Body), kept+`1, "stream":false, "x":{"b":1,"a":2}`) {
		t.Errorf("prefill body %s", p.Body)
	}
	if !strings.HasPrefix(string(d.Body), kept+`2, "stream":false, "x":{"b":1,"a":2}`) {
		t.Errorf("decode body %s", d.Body)
	}
	if got := d.Header.Get("X-Request-Id"); got != d.RequestID {
		t.Errorf("request id header %q", got)
	}
}

func TestWhatPrefillCannotServeGoesToDecodeAlone(t *testing.T) {
	r := newRig(t, rigOptions{})
	for i, tc := range []struct{ reason, body string }{
		{"n", `{"model":"sim","prompt":"a","n":2,"temperature":1,"max_tokens":2}`},
		{"prompt_list", `{"model":"sim","prompt":["a","b"],"max_tokens":2}`},
		{"prompt_embeds", `{"model":"sim","prompt_embeds":"AAAA","max_tokens":2}`},
		{"max_tokens_zero", `{"model":"sim","prompt":"a","max_tokens":0}`},
		{"invalid_fields", `{"model":"sim","prompt":"a","max_tokens":"many"}`},
		{"invalid_fields", `{"model":"sim","prompt":"a","stream_options":{"include_usage":true}}`},
		{"prompt_logprobs", `{"model":"sim","prompt":"a","prompt_logprobs":1,"max_tokens":1}`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			id := fmt.Sprintf("alone-%d", i)
			a := r.post("/v1/completions", tc.body, "X-Request-Id", id)
			if got := a.header.Get("X-Xpyd-Path") + " " + a.header.Get("X-Xpyd-Reason"); got != "decode_only "+tc.reason {
				t.Errorf("path and reason %q (status %d %s)", got, a.status, a.body)
			}
			if got := string(r.record(r.decode[0], id).Body); got != tc.body {
				t.Errorf("decode got %s, want the client's own bytes", got)
			}
		})
	}
	if n := len(r.prefill[0].Requests()); n != 0 {
		t.Errorf("prefill was asked %d times", n)
	}
}

func TestTwoChoicesStreamedAreWhole(t *testing.T) {
	r := newRig(t, rigOptions{})
	a := r.post("/v1/completions", `{"model":"sim","prompt":"abc","n":2,"temperature":1,"max_tokens":3,"stream":true}`)
	if a.err != nil || !strings.HasSuffix(a.body, "data: [DONE]\n\n") || strings.Count(a.body, `"finish_reason":"length"`) != 2 {
		t.Fatalf("%v %s", a.err, a.body)
	}
}

func TestClientParametersAreRefused(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, tc := range []struct{ name, body, code, param string }{
		{"handle", `{"model":"sim","prompt":"a","kv_transfer_params":{"do_remote_prefill":true}}`, "unsupported_parameter", "kv_transfer_params"},
		{"handle on the decode-only path", `{"model":"sim","prompt":"a","n":2,"kv_transfer_params":{"x":1}}`, "unsupported_parameter", "kv_transfer_params"},
		{"escaped name", `{"model":"sim","prompt":"a","kv_transfer\u005fparams":{"x":1}}`, "unsupported_parameter", "kv_transfer_params"},
		{"xargs", `{"model":"sim","prompt":"a","vllm_xargs":{"kv_transfer_params":"x"}}`, "unsupported_parameter", "vllm_xargs.kv_transfer_params"},
		{"doubled", `{"model":"sim","prompt":"a","max_tokens":1,"max_tokens":9}`, "duplicate_field", "max_tokens"},
		{"no JSON", `{"model":`, "invalid_json", ""},
		{"empty", ``, "invalid_json", ""},
		{"two documents", `{"model":"sim","prompt":"a"}{}`, "invalid_json", ""},
		{"array", `[]`, "invalid_json", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.post("/v1/completions", tc.body)
			if a.status != 400 || tc.code != "invalid_json" && a.code() != tc.code || tc.param != "" && !strings.Contains(a.body, `"param":"`+tc.param+`"`) {
				t.Errorf("status %d %s, want 400 %s naming %q", a.status, a.body, tc.code, tc.param)
			}
		})
	}
	if n := len(r.prefill[0].Requests()) + len(r.decode[0].Requests()); n != 0 {
		t.Errorf("backends were asked %d times", n)
	}
	a := r.post("/v1/completions", `{"model":"sim","prompt":"a","kv_transfer_params":null,"max_tokens":1}`)
	if a.status != 200 {
		t.Errorf("null handle: %d %s", a.status, a.body)
	}
}

func TestCachedTokensArePrefills(t *testing.T) {
	together(t)
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			// Since 0.32 a decode engine reports the same by itself. Before that it reports all of
			// the prompt.
			r := newRig(t, rigOptions{
				engine: func(o *sim.Options) { o.Version = "0.31.4" },
				config: func(c *proxy.Config) { c.Usage.Rewrite = on },
			})
			if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultCached, Value: 16}); err != nil {
				t.Fatal(err)
			}
			for _, c := range forms(prompt, 3) {
				if c.stream {
					c.more = `,"stream_options":{"include_usage":true}`
				}
				a := r.call(c)
				r.expectWhole(c, a)
				if strings.Count(a.body, `"cached_tokens":`) != 1 || strings.Contains(a.body, `"cached_tokens":16`) != on || strings.Contains(a.body, `"cached_tokens":0`) {
					t.Errorf("%s: cached_tokens in %s", c.name(), a.body)
				}
			}
		})
	}
}

func TestWithoutPrefillPoolItIsAPlainBalancer(t *testing.T) {
	r := newRig(t, rigOptions{prefill: -1, decode: 2})
	for _, c := range forms(prompt, 4) {
		a := r.call(c)
		r.expectWhole(c, a)
		if a.header.Get("X-Xpyd-Reason") != "no_prefill_pool" {
			t.Errorf("reason %q", a.header.Get("X-Xpyd-Reason"))
		}
	}
}

func TestDeadPrefillIsPassedOver(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2})
	r.prefill[0].Kill()
	for range 4 {
		for _, c := range forms(prompt, 3) {
			r.expectWhole(c, r.call(c))
		}
	}
	r.await("served by the living prefill engine alone", func() bool { return len(legs(r.prefill[1:], "prefill")) == 16 })
}

func TestNoPrefillLeftMeansDecodeAlone(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2})
	r.prefill[0].Kill()
	r.prefill[1].Kill()
	c := forms(prompt, 3)[1]
	a := r.call(c)
	r.expectWhole(c, a)
	if a.header.Get("X-Xpyd-Path") != "decode_only" || a.header.Get("X-Xpyd-Reason") != "prefill_unavailable" {
		t.Errorf("headers %v", a.header)
	}
}

func TestNoPrefillLeftWithoutDegradation(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.DecodeOnly.Enabled = false }})
	r.prefill[0].Kill()
	a := r.call(forms(prompt, 3)[0])
	if a.status != 503 || a.code() != "prefill_unavailable" || a.header.Get("Retry-After") == "" {
		t.Fatalf("%d %s %v", a.status, a.body, a.header)
	}
	if n := len(r.decode[0].Requests()); n != 0 {
		t.Errorf("decode was asked %d times", n)
	}
}

func TestDeadDecodeIsPassedOverWithTheSameHandle(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2})
	r.decode[0].Kill()
	for _, c := range forms(prompt, 3) {
		r.expectWhole(c, r.call(c))
	}
	r.expectNothingHeld()
	if n := r.metric(`xpyd_kv_handles_issued_total`); n != 4 {
		t.Errorf("%v handles for 4 requests", n)
	}
}

// A request that reached no backend took no path, and none is reported or counted.
func TestNoPathWhereNoBackendWasReached(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name, code string
		kill       []int // of prefill-0 and decode-0
		alone      bool  // decode_only.enabled
		field      string
	}{
		{"prefill is gone", "prefill_unavailable", []int{0}, false, ""},
		{"decode is gone", "decode_unavailable", []int{1}, true, `,"n":2`},
		{"both are gone", "decode_unavailable", []int{0, 1}, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.DecodeOnly.Enabled = tc.alone }})
			for _, i := range tc.kill {
				append(r.prefill, r.decode...)[i].Kill()
			}
			a := r.post("/v1/completions", `{"prompt":"x","max_tokens":2`+tc.field+`}`)
			if a.status != 503 || a.code() != tc.code {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if path, reason := a.header.Values("X-Xpyd-Path"), a.header.Values("X-Xpyd-Reason"); len(path)+len(reason) > 0 {
				t.Errorf("path %q, reason %q, want neither", path, reason)
			}
			if n := r.metric("xpyd_decisions_total"); n != 0 {
				t.Errorf("%v decisions counted", n)
			}
			if _, line, ok := strings.Cut(r.logs.String(), `"code":"`+tc.code); !ok || strings.Contains(r.logs.String(), `"path":`) {
				t.Errorf("the log names a path, or lacks the code %s: %s", tc.code, line)
			}
		})
	}
}

func TestNoDecodeLeft(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.decode[0].Kill()
	a := r.call(forms(prompt, 3)[0])
	if a.status != 503 || a.code() != "decode_unavailable" || a.header.Get("Retry-After") == "" {
		t.Fatalf("%d %s %v", a.status, a.body, a.header)
	}
}

func TestConcurrentConnectorNeedsNoHandle(t *testing.T) {
	r := newRig(t, rigOptions{dialect: newPushDialect(), engine: func(o *sim.Options) {
		o.Role = sim.RoleBoth
	}})
	for _, c := range forms(prompt, 5) {
		r.expectWhole(c, r.call(c))
	}
	// This D computes what it misses, so it may be done before P has read its leg, which is then
	// cut. Not every request has to reach both.
	var p, d sim.Record
	r.await("both legs of one request", func() bool {
		for _, p = range r.prefill[0].Requests() {
			for _, d = range r.decode[0].Requests() {
				if p.RequestID == d.RequestID {
					return true
				}
			}
		}
		r.call(forms(prompt, 5)[0])
		return false
	})
	transfer := regexp.MustCompile(`"transfer_id":"(xfer-[^"]+)"`)
	sent, read := transfer.FindSubmatch(p.Body), transfer.FindSubmatch(d.Body)
	if sent == nil || read == nil || !bytes.Equal(sent[1], read[1]) {
		t.Errorf("legs %s and %s", p.Body, d.Body)
	}
	// D waits for blocks that never come, so P's failure must cut it.
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultHang}); err != nil {
		t.Fatal(err)
	}
	r.prefill[0].Kill()
	a := r.call(forms(prompt, 5)[0])
	if a.status != 503 || a.code() != "prefill_unavailable" {
		t.Errorf("dead prefill: %d %s", a.status, a.body)
	}
}

func TestKeys(t *testing.T) {
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.APIKey = "engine-key" },
		config: func(c *proxy.Config) { c.APIKeys, c.BackendAPIKey = []string{"client-key"}, "engine-key" },
	})
	c := forms(prompt, 2)[0]
	for _, key := range []string{"", "Bearer wrong", "Bearer engine-key", "client-key"} {
		if a := r.call(c, "Authorization", key); a.status != 401 || a.code() != "invalid_api_key" || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("key %q: %d %s", key, a.status, a.body)
		}
	}
	r.expectWhole(c, r.call(c, "Authorization", "Bearer client-key"))
	if a := r.send("GET", "/v1/models", "", "Authorization", "Bearer client-key"); a.status != 200 || !strings.Contains(a.body, `"id":"sim"`) {
		t.Errorf("models: %d %s", a.status, a.body)
	}
	if a := r.send("GET", "/livez", ""); a.status != 200 {
		t.Errorf("health without a key: %d", a.status)
	}
	if strings.Contains(r.logs.String(), "-key\"") {
		t.Error("a key reached the log")
	}
}

func TestWrongBackendKeyIsTheProxysFault(t *testing.T) {
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.APIKey = "engine-key" },
		config: func(c *proxy.Config) { c.BackendAPIKey = "old-key" },
	})
	a := r.call(forms(prompt, 2)[0])
	if a.status != 502 || a.code() != "upstream_auth" || a.header.Get("X-Should-Retry") != "false" {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

func TestClientsOwnKeyPassesThrough(t *testing.T) {
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.APIKey = "engine-key" }})
	c := forms(prompt, 2)[0]
	r.expectWhole(c, r.call(c, "Authorization", "Bearer engine-key"))
	if a := r.call(c); a.status != 401 {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
}

func TestOtherRoutes(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, tc := range []struct {
		method, path, body string
		status             int
		holds              string
	}{
		{"GET", "/v1/models", "", 200, `"id":"sim"`},
		{"HEAD", "/v1/models", "", 200, ""},
		{"GET", "/version", "", 200, `"version":"0.32.0"`},
		{"POST", "/tokenize", `{"model":"sim","prompt":"abcdefgh"}`, 200, `"count":2`},
		{"POST", "/detokenize", `{"model":"sim","tokens":[1684234849]}`, 200, `abcd`},
		{"GET", "/livez", "", 200, "ok"},
		{"GET", "/readyz", "", 200, "ok"},
		{"GET", "/health", "", 200, "ok"},
		{"GET", "/metrics", "", 404, "unknown_route"},
		{"GET", "/v1", "", 404, "xpyd serves /v1/chat/completions, /v1/completions, /v1/messages, "},
		{"POST", "/sleep", "{}", 404, "unknown_route"},
		{"POST", "/v1/completions/", "{}", 404, "unknown_route"},
		{"GET", "/v1/completions", "", 405, "method_not_allowed"},
		{"POST", "/v1/models", "{}", 405, "method_not_allowed"},
		{"PUT", "/v1/completions", "{}", 405, "method_not_allowed"},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			a := r.send(tc.method, tc.path, tc.body, "Content-Type", "application/json")
			if a.status != tc.status || !strings.Contains(a.body, tc.holds) {
				t.Errorf("%d %s, want %d with %s", a.status, a.body, tc.status, tc.holds)
			}
		})
	}
}

func TestReadiness(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.decode[0].Kill()
	if a := r.call(forms(prompt, 2)[0]); a.status != 503 {
		t.Errorf("no decode: %d", a.status)
	}
	r.await("unready", func() bool { return !r.server.Ready() })
	if a := r.send("GET", "/readyz", ""); a.status != 503 {
		t.Errorf("readyz %d", a.status)
	}
	if a := r.send("GET", "/livez", ""); a.status != 200 {
		t.Errorf("livez %d", a.status)
	}
	if err := r.decode[0].Restart(); err != nil {
		t.Fatal(err)
	}
	r.await("ready again", r.server.Ready)
	c := forms(prompt, 2)[1]
	r.expectWhole(c, r.call(c))
}

func TestOversizeBody(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Limits.Body = 1000 }})
	big := `{"model":"sim","prompt":"` + strings.Repeat("a", 2000) + `"}`
	if a := r.post("/v1/completions", big); a.status != 413 || a.code() != "body_too_large" || a.header.Get("Connection") == "keep-alive" {
		t.Errorf("with a length: %d %s", a.status, a.body)
	}
	req, _ := http.NewRequest("POST", r.url+"/v1/completions", struct{ *strings.Reader }{strings.NewReader(big)})
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil || resp.StatusCode != 413 {
		t.Fatalf("chunked: %v %v", resp, err)
	}
	_ = resp.Body.Close()
	if got := r.metric("xpyd_request_bytes_buffered"); got != 0 {
		t.Errorf("%v bytes still charged", got)
	}
}

func TestByteBudget(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Limits.BodyBudget = 20_000 }})
	c := forms(strings.Repeat("a", 30_000), 2)[0]
	a := r.call(c)
	if a.status != 503 || a.code() != "overloaded" || a.header.Get("Retry-After") == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	small := forms(prompt, 2)[0]
	r.expectWhole(small, r.call(small))
	if got := r.metric("xpyd_request_bytes_buffered"); got != 0 {
		t.Errorf("%v bytes still charged", got)
	}
}
