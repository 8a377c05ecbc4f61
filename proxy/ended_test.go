package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
)

// endedAnswers are whole answers whose first token ended the text, by the path.
func endedAnswers() map[string]string {
	return map[string]string{
		"/v1/messages":  `{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"sim","stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}`,
		"/v1/responses": `{"id":"resp_1","object":"response","status":"completed","output":[],"model":"sim","usage":{"input_tokens":3,"output_tokens":1,"total_tokens":4}}`,
	}
}

const endedBody = `{"model":"sim","max_tokens":5,"messages":[{"role":"user","content":"a"}],"input":"a"}`

// A prefill's token may end the text where the leg can have no min_tokens. Mooncake's engine then sends the blocks to nobody,
// and decode would wait for them for minutes. It serves the request alone, and neither engine has failed.
func TestPrefillThatEndsTheTextSendsNoBlocks(t *testing.T) {
	together(t)
	bootstrap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"0":{"engine_id":"e"}}`) }))
	t.Cleanup(bootstrap.Close)
	dialect, _ := kvparams.Lookup("mooncake")
	for path, ended := range endedAnswers() {
		t.Run(path, func(t *testing.T) {
			reached, ids := make(chan struct{}, 8), make(chan string, 8)
			p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				<-reached
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, ended)
			})
			d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				ids <- q.Header.Get("X-Request-Id")
				body, _ := io.ReadAll(q.Body)
				if strings.Contains(string(body), "kv_transfer_params") {
					reached <- struct{}{}
					<-q.Context().Done()
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, ended)
			})
			r := newRig(t, rigOptions{dialect: dialect, router: func(c *router.Config) {
				c.Prefill = router.MustEntries(p.server.URL + " bootstrap=" + bootstrap.URL[strings.LastIndexByte(bootstrap.URL, ':')+1:])
				d.asDecode(c)
			}})
			a := r.post(path, endedBody)
			if a.status != 200 || a.body != ended {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if got, why := a.header.Get("X-Xpyd-Path"), a.header.Get("X-Xpyd-Reason"); got != "decode_only" || why != "no_handle" {
				t.Errorf("path %q, reason %q", got, why)
			}
			r.await("counted", func() bool {
				return r.metric(`xpyd_leg_requests_total{backend="`+p.server.URL+`",leg="prefill",outcome="client_fault"`) == 1 &&
					r.metric(`xpyd_leg_requests_total{backend="`+d.server.URL+`",leg="decode",outcome="no_verdict"`) == 1 &&
					r.metric(`xpyd_leg_requests_total{backend="`+d.server.URL+`",leg="decode",outcome="ok"`) == 1
			})
			r.await("one round, as no engine has failed", func() bool {
				return strings.Contains(r.logs.String(), `"reason":"no_handle","model":"sim"`) && strings.Contains(r.logs.String(), `"rounds":1,`)
			})
			if cut, other := <-ids, <-ids; cut == other {
				t.Errorf("both decode legs have the id %q, and the engine may still be ending the first", cut)
			}
		})
	}
}

// Such a request counts against decode_only.max_share, whether its legs start together or one after the other.
func TestPrefillThatEndsTheTextTakesOfTheShare(t *testing.T) {
	together(t)
	for _, name := range []string{"mooncake", "moriio-write"} {
		t.Run(name, func(t *testing.T) {
			bootstrap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"0":{"engine_id":"e"}}`) }))
			t.Cleanup(bootstrap.Close)
			dialect, _ := kvparams.Lookup(name)
			ended := endedAnswers()["/v1/messages"]
			var alone atomic.Int64
			p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, strings.TrimSuffix(ended, "}")+`,"kv_transfer_params":null}`)
			})
			d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				body, _ := io.ReadAll(q.Body)
				if strings.Contains(string(body), "kv_transfer_params") {
					<-q.Context().Done()
					return
				}
				alone.Add(1)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, ended)
			})
			r := newRig(t, rigOptions{dialect: dialect, config: func(c *proxy.Config) { c.DecodeOnly.MaxShare = 0 }, router: func(c *router.Config) {
				entry := p.server.URL
				if name == "mooncake" {
					entry += " bootstrap=" + bootstrap.URL[strings.LastIndexByte(bootstrap.URL, ':')+1:]
				}
				c.Prefill = router.MustEntries(entry)
				d.asDecode(c)
			}})
			if a := r.post("/v1/messages", endedBody); a.status != 503 || !strings.Contains(a.body, "max_share") {
				t.Errorf("%d %s", a.status, a.body)
			}
			if n := alone.Load(); n != 0 {
				t.Errorf("decode served %d requests alone", n)
			}
			r.expectNothingHeld()
		})
	}
}

// MoRIIO's engine gives no handle then, which is no failure of its own, however often it happens.
func TestPrefillThatEndsTheTextIsNotEjected(t *testing.T) {
	together(t)
	dialect, _ := kvparams.Lookup("moriio-write")
	for path, ended := range endedAnswers() {
		t.Run(path, func(t *testing.T) {
			var prefills atomic.Int64
			engine := func(w http.ResponseWriter, q *http.Request) {
				body, _ := io.ReadAll(q.Body)
				if strings.Contains(string(body), "do_remote_decode") {
					prefills.Add(1)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, strings.TrimSuffix(ended, "}")+`,"kv_transfer_params":null}`)
			}
			p, other, d := newStub(t, engine), newStub(t, engine), newStub(t, engine)
			r := newRig(t, rigOptions{prefill: 2, dialect: dialect, router: func(c *router.Config) {
				c.Prefill = router.MustEntries(p.server.URL, other.server.URL)
				d.asDecode(c)
				c.Health.EjectAfter = 2
			}})
			const requests = 8
			for range requests {
				if a := r.post(path, endedBody); a.status != 200 || a.header.Get("X-Xpyd-Reason") != "no_handle" {
					t.Fatalf("%d %v %s", a.status, a.header, a.body)
				}
			}
			if n := prefills.Load(); n != requests {
				t.Errorf("%d prefills of %d requests", n, requests)
			}
			if n := r.metric("xpyd_backend_ejections_total"); n != 0 {
				t.Errorf("%v ejections", n)
			}
		})
	}
}
