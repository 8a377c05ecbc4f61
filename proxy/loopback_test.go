package proxy_test

import (
	"io"
	"net/http"
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
			c.Decode = []string{strings.Replace(d.server.URL, "127.0.0.1", "localhost", 1)} // another host, as far as names tell
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
