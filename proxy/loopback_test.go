package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"xpyd/proxy"
	"xpyd/router"
)

// A handle may hold the text of its host elsewhere as well, and may write it in more than one way.
func TestLoopbackIsRewrittenInItsPlace(t *testing.T) {
	const handle = `{"remote_engine_id":"localhost","remote_request_id":"localhost","do_remote_prefill":true,` +
		`"remote_block_ids":[[7]],"remote_host":"local\u0068ost","remote_port":1}`
	p := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":`+handle+`}`)
	})
	seen := make(chan string, 4)
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		seen <- string(body)
		w.WriteHeader(http.StatusBadRequest) // so that there is a release as well
		_, _ = io.WriteString(w, `{"error":{"message":"no","type":"BadRequestError","code":400}}`)
	})
	r := newRig(t, rigOptions{
		router: func(c *router.Config) {
			p.asPrefill(c)
			c.Decode = router.MustEntries(strings.Replace(d.server.URL, "127.0.0.1", "localhost", 1)) // another host, as far as names tell
		},
		config: func(c *proxy.Config) { c.KV.RewriteLoopback = true },
	})
	r.call(forms(prompt, 4)[0])
	want := strings.Replace(handle, `local\u0068ost`, "127.0.0.1", 1)
	for leg, body := range map[string]string{"decode": <-seen, "release": <-d.releases} {
		if !strings.Contains(body, want) {
			t.Errorf("%s got %s\nwant %s in it", leg, body, want)
		}
	}
}

// An encode engine that calls itself by a loopback host is named by its own host to engines elsewhere, if the
// configuration says so. Otherwise what it says goes on as it is.
func TestLoopbackOfAnEncoder(t *testing.T) {
	for _, rewrite := range []bool{true, false} {
		e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			if q.Method == http.MethodPost {
				_, _ = io.WriteString(w, `{"ec_transfer_params":{"h":{"peer_host":"local\u0068ost","peer_port":1}}}`)
				return
			}
			_, _ = io.WriteString(w, `{"data":[{"id":"sim"}]}`)
		}))
		t.Cleanup(e.Close)
		r := newRig(t, rigOptions{
			encoders: []string{e.URL},
			router: func(c *router.Config) {
				c.Decode[0].URL = strings.Replace(c.Decode[0].URL, "127.0.0.1", "localhost", 1)
			},
			config: func(c *proxy.Config) { c.KV.RewriteLoopback = rewrite },
		})
		if a := r.post("/v1/chat/completions", withMedia("", sound)); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		want := `"ec_transfer_params":{"h":{"peer_host":"local\u0068ost","peer_port":1}}`
		if rewrite {
			want = `"ec_transfer_params":{"h":{"peer_host":"127.0.0.1","peer_port":1}}`
		}
		told := false
		for _, q := range r.prefill[0].Requests() {
			told = told || strings.Contains(string(q.Body), want)
		}
		if !told {
			t.Errorf("rewrite %v: no prefill got %s", rewrite, want)
		}
		r.expectNothingHeld()
	}
}
