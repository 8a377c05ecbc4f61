package cmd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// An operator learns over the admin port and from the commands why each engine is down and since when, who drained one,
// and who has had the configuration read again.
func TestOperatorsSeeWhy(t *testing.T) {
	t.Parallel()
	p1, d1, d2 := startEngine(t, sim.Options{Role: sim.RolePrefill}), startEngine(t, sim.Options{Role: sim.RoleDecode}), startEngine(t, sim.Options{Role: sim.RoleDecode})
	loading := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = w.Write([]byte(`{"data":[]}`))
		}
	}))
	t.Cleanup(loading.Close)
	t.Cleanup(empty.Close)
	https := strings.Replace(startEngine(t, sim.Options{Role: sim.RoleDecode}).URL(), "http", "https", 1)
	p := startSelf(t, "serve", "--prefill", p1.URL()+",http://127.0.0.1:7", "--decode", strings.Join([]string{d1.URL(), d2.URL(), https, loading.URL, empty.URL}, ","),
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--health-interval", "50ms", "--health-suspect-interval", "50ms")
	p.serving(1)
	for engine, want := range map[string]string{
		"http://127.0.0.1:7": "connection refused",
		https:                "TLS: it does not speak TLS; give its URL with http://",
		loading.URL:          "/health answered 503",
		empty.URL:            "/v1/models lists no model",
	} {
		p.awaitLine(engine, want, "status")
		p.awaitLine(engine+": "+want, "down", "events")
		if _, text := p.get(p.admin, "/status"); !regexp.MustCompile(regexp.QuoteMeta(engine) + ` is down since \d\d:\d\d:\d\d UTC: ` + regexp.QuoteMeta(want)).MatchString(text) {
			t.Errorf("no notice says why %s is down: %s", engine, text)
		}
	}

	p.operate("ctl", "drain", d2.URL())
	p.awaitLine(d2.URL(), "an operator has set it to drain (127.0.0.1, with xpyd ctl)", "status")
	if status, text := p.send("PATCH", "/backends/"+strings.TrimPrefix(d2.URL(), "http://"), `{"state":"disabled"}`, "X-Xpyd-Client", "page"); status != http.StatusOK {
		t.Fatal(text)
	}
	p.operate("ctl", "reload")
	for _, line := range []string{"drain  .*state drain (127.0.0.1, with xpyd ctl)", "disable .*state disabled (127.0.0.1, on the page)", "reload .*(127.0.0.1, with xpyd ctl)"} {
		kind, who, _ := strings.Cut(line, ".*")
		p.awaitLine(kind, who, "events")
	}
	if _, text := p.get(p.admin, "/pools"); !strings.Contains(text, `"by": "127.0.0.1, on the page"`) {
		t.Errorf("the pools do not say who disabled the engine: %s", text)
	}

	// The numbers go on from the last one, and what is older than the time is left out.
	var page struct {
		Last   uint64
		Events []struct{ Kind string }
	}
	_, text := p.get(p.admin, "/events?since=0")
	if err := json.Unmarshal([]byte(text), &page); err != nil || page.Last == 0 || page.Events[0].Kind != "started" {
		t.Errorf("%v in %s", err, text)
	}
	if out := p.operate("events", "--since", "0s"); out != "" {
		t.Errorf("events of no time: %s", out)
	}
	if _, err := p.ctl("events", "--since", "yesterday"); err == nil || !strings.Contains(err.Error(), `since: "yesterday" must be the number of an event`) {
		t.Error(err)
	}
}

// What a client has put into the name of a model neither reaches the operator's terminal as a command nor makes cells of its own.
func TestFailuresArePlainText(t *testing.T) {
	t.Parallel()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"total":1,"groups":[{"code":"deadline_exceeded","count":1,"error":"\u009b31m"}],"failures":[{"id":"id","model":"\u001b]0;a\tb\nc d é","phases":[]}]}`))
	}))
	t.Cleanup(admin.Close)
	p := &process{t: t, admin: strings.TrimPrefix(admin.URL, "http://")}
	out, err := p.ctl("failures")
	if err != nil || strings.ContainsAny(out, "\x1b\t\u009b") || !strings.Contains(out, "\uFFFD]0;a\uFFFDb\uFFFDc d é") {
		t.Errorf("%v: %q", err, out)
	}
}

// awaitLine waits until the command prints a line with both texts.
func (p *process) awaitLine(one, other string, command ...string) {
	p.t.Helper()
	out := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		out = p.operate(command...)
		for line := range strings.Lines(out) {
			if strings.Contains(line, one) && strings.Contains(line, other) {
				return
			}
		}
	}
	p.t.Fatalf("no line of %q has %q and %q: %s", command, one, other, out)
}
