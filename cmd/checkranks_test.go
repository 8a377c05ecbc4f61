package cmd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"xpyd/sim"
)

// frontOf starts a server with that many ranks.
func frontOf(t *testing.T, role sim.Role, ranks int) string {
	t.Helper()
	var urls []string
	for i := range ranks {
		e, err := sim.Start(sim.Options{Name: fmt.Sprint(role, i), Role: role}.Fast())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		urls = append(urls, e.URL())
	}
	front, err := sim.StartRanks(urls...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = front.Close() })
	return front.URL()
}

// A pool that names fewer ranks than its server has leaves them idle, and one that names more gets 400.
func TestCheckCountsRanks(t *testing.T) {
	p, d := frontOf(t, sim.RolePrefill, 2), frontOf(t, sim.RoleDecode, 2)
	for name, tc := range map[string]struct {
		prefill, decode, want string
		fails                 bool
	}{
		"all":          {p + "@0..1", d + "@0..1", "", false},
		"one left":     {p + "@0..1", d + "@1", "decode " + d + " has 2 data-parallel ranks, of which the pool names 1: the others get no requests", false},
		"as one":       {p, d + "@0..1", "prefill " + p + " has 2 data-parallel ranks, which are one backend here", false},
		"found":        {p + "@auto", d + "@auto", d + "@1  ok", false},
		"found beside": {p + "@0..1", d + "@auto", p + "@0  " + d + "@1  ok", false},
		"nobody":       {p + "@auto", "http://127.0.0.1:1@auto", "decode http://127.0.0.1:1@auto is not healthy", true},
		"too many":     {p + "@0..2", d + "@0..1", "prefill " + p + " has 2 data-parallel ranks, from 0, and no rank 2", true},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runCheck("--listen=127.0.0.1:0", "--probe", "--prefill", tc.prefill, "--decode", tc.decode)
			if (err != nil) != tc.fails || !strings.Contains(out, tc.want) || !tc.fails && !strings.Contains(tc.want, " has 2 data-parallel") && strings.Contains(out, "data-parallel ranks") {
				t.Errorf("%v\n%s", err, out)
			}
			if n := strings.Count(out, "does not fit: decode http://127.0.0.1:1@auto"); name == "nobody" && n != 1 {
				t.Errorf("an engine that is down has %d faults\n%s", n, out)
			}
		})
	}
}

// An engine with @auto that is well and does not show its ranks is a fault, and so is one with more than serve takes.
func TestCheckRefusesRanks(t *testing.T) {
	decode := startSim(t, sim.Options{Role: sim.RoleDecode}.Fast())
	engine, err := url.Parse(decode.URL())
	if err != nil {
		t.Fatal(err)
	}
	for want, page := range map[string]http.HandlerFunc{
		"@auto does not say how many data-parallel ranks it has: status 403": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"@auto does not say how many data-parallel ranks it has: Get":        func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"@auto says that it has 1025 data-parallel ranks; xpyd takes 1 to 1024": func(w http.ResponseWriter, _ *http.Request) {
			for n := range 1025 {
				_, _ = fmt.Fprintf(w, "vllm:num_requests_running{engine=\"%d\"} 0\n", n)
			}
		},
	} {
		pass := httputil.NewSingleHostReverseProxy(engine)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				page(w, r)
				return
			}
			pass.ServeHTTP(w, r)
		}))
		out, err := runCheck("--listen=127.0.0.1:1", "--probe", "--decode", front.URL+"@auto")
		if err == nil || strings.Count(out, want) != 1 {
			t.Errorf("%v, want %s\n%s", err, want, out)
		}
		front.Close()
	}
}
