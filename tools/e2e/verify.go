package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
)

// deployment is what one run of xpyd verify is about, with at most one thing wrong.
type deployment struct {
	wrong   string
	prefill spec
	serve   []string                        // further flags of xpyd serve
	verify  []string                        // and of xpyd verify
	front   func(http.Handler) http.Handler // stands before xpyd, or
	before  func(*httputil.ReverseProxy)    // before the decode engine, for xpyd verify alone
	red     []string                        // rows that FAIL; all others are ok
}

// deployments are a sound one and one for each fault that xpyd verify must find. The rows that take
// long and do not matter for a fault are skipped.
func deployments() []deployment {
	quick := []string{"--skip", "lease,client leaves,rejected,tools,EOS first"}
	weights := prefillEngine(2)
	weights.args = append(baseArgs(), "--load-format", "dummy")
	return []deployment{
		{wrong: "nothing", prefill: prefillEngine(1)},
		{wrong: "pd.mode never", prefill: prefillEngine(1), serve: []string{"--pd-mode", "never"}, verify: quick,
			red: []string{"path", "prefill", "pull", "request id"}},
		{wrong: "another lease", prefill: prefillEngine(1), serve: []string{"--kv-lease", "60s"}, verify: []string{"--kv-lease", "60s"},
			red: []string{"lease"}},
		// Decode goes on for clients that have left, so the row after this one would be undecided.
		{wrong: "nobody tells who has left", prefill: prefillEngine(1), front: tellsNobody,
			verify: []string{"--skip", "rejected,lease,tools,EOS first", "--settle", "3s"}, red: []string{"client leaves"}},
		{wrong: "versions", prefill: prefillEngine(1), before: otherVersion, verify: quick, red: []string{"engines"}},
		{wrong: "a prefill engine without connector", prefill: plainEngine(), verify: quick, red: []string{"path", "pull"}},
		{wrong: "other weights on prefill", prefill: weights, verify: []string{"--skip", "lease,client leaves,rejected,tools,EOS first,logprobs,one token"},
			red: []string{"chat", "chat streamed", "completions", "completions streamed"}},
	}
}

// verifies runs xpyd verify on each of them.
func verifies(ctx context.Context, t *trial) error {
	for _, d := range deployments() {
		if t.enough() {
			return nil
		}
		if err := d.judge(ctx, t); err != nil {
			return fmt.Errorf("wrong is %s: %w", d.wrong, err)
		}
	}
	return nil
}

func (d deployment) judge(ctx context.Context, t *trial) error {
	engines, err := t.fleet.all(ctx, d.prefill, decodeEngine(1))
	if err != nil {
		return err
	}
	p, decode := engines[0].url, engines[1].url
	if err := t.fleet.awaitFree(ctx); err != nil { // of what the run before has left
		return err
	}
	x, err := t.fleet.proxy(ctx, append([]string{"--prefill", p, "--decode", decode}, d.serve...)...)
	if err != nil {
		return err
	}
	base := x.url
	if d.front != nil {
		server := httptest.NewServer(d.front(passesOn(x.url)))
		defer server.Close()
		base = server.URL
	}
	if d.before != nil {
		pass := passesOn(decode)
		d.before(pass)
		server := httptest.NewServer(pass)
		defer server.Close()
		decode = server.URL
	}
	args := append([]string{"verify", "--json", "--url", base, "--prefill", p, "--decode", decode}, d.verify...)
	rows, err := verifyRows(ctx, t.fleet.opts.xpyd, args...)
	if err != nil {
		return err
	}
	d.compare(t, rows)
	return errors.Join(t.fleet.endProxies()...)
}

// verified is a row that xpyd verify prints.
type verified struct{ Check, State, Detail string }

// command runs xpyd to its end, and returns what it prints.
func (f *fleet) command(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, f.opts.xpyd, args...).CombinedOutput()
	return string(out), err
}

func verifyRows(ctx context.Context, xpyd string, args ...string) ([]verified, error) {
	out, err := exec.CommandContext(ctx, xpyd, args...).Output()
	var report struct{ Rows []verified }
	if broken := json.NewDecoder(bytes.NewReader(out)).Decode(&report); broken != nil {
		return nil, fmt.Errorf("xpyd verify: %w, %w", broken, err)
	}
	return report.Rows, nil
}

// compare: the rows that must be red are, and the others are ok.
func (d deployment) compare(t *trial, rows []verified) {
	want := map[string]bool{}
	for _, name := range d.red {
		want[name] = true
	}
	for _, r := range rows {
		state := "ok"
		if want[r.Check] {
			state = "FAIL"
		}
		delete(want, r.Check)
		if r.State != state {
			t.fail("wrong is %s: row %q is %s, want %s: %s", d.wrong, r.Check, r.State, state, r.Detail)
			continue
		}
		if state == "FAIL" || d.red == nil {
			t.say("wrong is %s: %s %s: %s", d.wrong, r.Check, r.State, r.Detail)
		}
		t.pass()
	}
	if len(want) > 0 {
		t.fail("wrong is %s: no row %s", d.wrong, strings.Join(slices.Sorted(maps.Keys(want)), ", "))
	}
}

// passesOn is a proxy to a server.
func passesOn(base string) *httputil.ReverseProxy {
	target, err := url.Parse(base)
	if err != nil {
		panic("BUG: URL of a server that runs: " + err.Error())
	}
	p := httputil.NewSingleHostReverseProxy(target)
	p.FlushInterval = -1
	return p
}

// tellsNobody goes on reading for clients that have left.
func tellsNobody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(deafWriter{w}, r.WithContext(context.WithoutCancel(r.Context())))
	})
}

type deafWriter struct{ http.ResponseWriter }

func (w deafWriter) Write(b []byte) (int, error) {
	_, _ = w.ResponseWriter.Write(b)
	return len(b), nil
}

func (w deafWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// otherVersion has an engine tell another version.
func otherVersion(p *httputil.ReverseProxy) {
	p.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Path == "/version" {
			const text = `{"version":"0.33.0"}`
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
			r.Header.Set("Content-Length", fmt.Sprint(len(text)))
		}
		return nil
	}
}
