package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// bidirectional makes decode engines that describe their own blocks in every answer, as
// vLLM 0.33 does with bidirectional_kv_xfer.
func bidirectional(o *sim.Options) { o.Version, o.Bidirectional = "0.33.0", true }

// expectNoHandle fails if an answer says where decode's blocks are, or has lost the member for it.
func (r *rig) expectNoHandle(c call, a answer) {
	r.t.Helper()
	for _, leaked := range []string{"remote_host", "remote_block_ids", "remote_engine_id", "127.0.0.1"} {
		if strings.Contains(a.body, leaked) {
			r.t.Fatalf("%s: the client reads %s of decode's own handle: %q", c.name(), leaked, a.body[max(0, len(a.body)-700):])
		}
	}
	if !strings.Contains(a.body, `"kv_transfer_params":null`) {
		r.t.Fatalf("%s: no kv_transfer_params at all: the test proves nothing: %.400q", c.name(), a.body)
	}
}

func TestDecodesOwnHandleReachesNoClient(t *testing.T) {
	r := newRig(t, rigOptions{engine: bidirectional})
	for _, fault := range []string{"", "[[D:slice@1]]", "[[D:slice@7]]"} {
		for _, c := range forms("who holds the blocks"+fault, 3) {
			a := r.call(c)
			r.expectWhole(c, a)
			r.expectNoHandle(c, a)
			// Two choices are two ends, each with the handle.
			c.more = `,"n":2,"temperature":1`
			if !c.stream {
				continue
			}
			if a = r.call(c); a.err != nil || a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
				t.Fatalf("%s, two choices: status %d, %v, %q", c.name(), a.status, a.err, a.body)
			}
			if strings.Contains(a.body, "remote_host") {
				t.Fatalf("%s, two choices: the client reads decode's own handle: %q", c.name(), a.body)
			}
		}
	}
	r.expectNothingHeld()
}

func TestDecodesOwnHandleIsHiddenInAnswersBeyondTheLimit(t *testing.T) {
	r := newRig(t, rigOptions{engine: bidirectional, config: func(c *proxy.Config) { c.Limits.Answer = 32 << 10 }})
	for _, fault := range []string{"", "[[D:slice@4099]]"} {
		for _, chat := range []bool{false, true} {
			c := call{chat: chat, prompt: "[[text:big]]" + fault, tokens: 3}
			a := r.call(c)
			r.expectWhole(c, a)
			r.expectNoHandle(c, a)
			if !json.Valid([]byte(a.body)) || len(a.body) < 200<<10 {
				t.Fatalf("%s: %d bytes, JSON %v", c.name(), len(a.body), json.Valid([]byte(a.body)))
			}
		}
	}
	r.expectNothingHeld()
}

// No request asks for the blocks that such a decode engine keeps, so a metric counts each such
// answer, and the log says it once.
func TestAnswersWhoseBlocksDecodeKeepsAreCounted(t *testing.T) {
	r := newRig(t, rigOptions{engine: bidirectional, config: func(c *proxy.Config) { c.Limits.Answer = 32 << 10 }})
	want := 0.0
	for _, c := range append(forms(prompt, 3), call{prompt: "[[text:big]]", tokens: 3}) {
		r.expectWhole(c, r.call(c))
		want++
		r.await("counted", func() bool { return r.metric("xpyd_kv_kept_by_decode_total") == want })
	}
	r.await("keeping blocks", func() bool { return r.decode[0].Ledger().Pinned > 0 })
	if n := strings.Count(r.logs.String(), "bidirectional_kv_xfer"); n != 1 {
		t.Errorf("said %d times in the log, want once\n%s", n, r.logs)
	}
	r.expectNothingHeld()
}

func TestUsualDecodeKeepsNothing(t *testing.T) {
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Version = "0.33.0" }})
	for _, c := range forms(prompt, 3) {
		r.expectWhole(c, r.call(c))
	}
	r.expectNothingHeld()
	if n := r.metric("xpyd_kv_kept_by_decode_total"); n != 0 {
		t.Errorf("%v answers are counted whose blocks decode keeps, want none", n)
	}
}

// A decode engine with ec_role ec_both tells where its encodings are, as an encode engine does.
func TestDecodesOwnEncodingsReachNoClient(t *testing.T) {
	together(t)
	both := func(o *sim.Options) { o.Encodes = true }
	for name, options := range map[string]rigOptions{
		"whole": {engine: both}, "decode alone": {engine: both, prefill: -1}, "encode pool": {engine: both, encode: 1},
		"beyond the limit": {engine: both, config: func(c *proxy.Config) { c.Limits.Answer = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options)
			items := []string{picture("AAAA"), sound}
			a := r.post("/v1/chat/completions", withMedia("", items...))
			r.expectMedia(a, items...)
			r.expectNoEncodings(a)
			if !strings.Contains(a.body, `"ec_transfer_params":null`) && name != "beyond the limit" {
				t.Fatalf("no ec_transfer_params at all: the test proves nothing: %.400q", a.body)
			}
			a = r.post("/v1/messages", `{"model":"sim","max_tokens":4,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}]}]}`)
			r.expectNoEncodings(a)
			if a.status != 200 || !strings.Contains(a.body, `"ec_transfer_params":`) {
				t.Fatalf("status %d, no ec_transfer_params at all: the test proves nothing: %.400q", a.status, a.body)
			}
			r.expectNothingHeld()
			if n := r.metric("xpyd_kv_kept_by_decode_total"); n != 0 {
				t.Errorf("%v answers are counted as blocks that decode keeps, want none", n)
			}
		})
	}
}

// expectNoEncodings fails if an answer says where encodings are.
func (r *rig) expectNoEncodings(a answer) {
	r.t.Helper()
	for _, leaked := range []string{"peer_host", "item_indices", "127.0.0.1"} {
		if a.status != 200 || strings.Contains(a.body, leaked) {
			r.t.Fatalf("status %d, the client reads %s of decode's encodings: %q", a.status, leaked, a.body)
		}
	}
}

// No vLLM known writes ec_transfer_params into streams. One that does is fenced like one that writes
// kv_transfer_params.
func TestEncodingsInStreamsReachNoClient(t *testing.T) {
	const own = `"ec_transfer_params":{"8f3a":{"item_indices":[0],"peer_host":"10.0.0.7","peer_port":5601}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodPost {
			_, _ = io.WriteString(w, `{"data":[{"id":"sim"}]}`)
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}],"+own+"}\n\n"+
			"data: {"+own+",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { c.Decode = router.MustEntries(s.URL) }})
	a := r.call(call{chat: true, stream: true, prompt: "hi", tokens: 2})
	r.expectNoEncodings(a)
	if a.err != nil || strings.Count(a.body, `"ec_transfer_params":null`) != 2 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("%v, %q", a.err, a.body)
	}
}
