package proxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// statusPage is what the tests read of GET /status.
type statusPage struct {
	Version  string
	Ready    bool
	Line     string
	Notices  []struct{ Kind, Text string }
	Running  int
	KV       struct{ Pinned, Stranded float64 }
	Backends []struct{ Role, URL, State string }
	Pairs    []struct {
		Prefill, Decode     string
		Transfers, Failures int
	}
	Window struct {
		OK, Failed, Gone int
		TTFT             struct{ P50 float64 }
		Ways             map[string]map[string]int
	}
	Lives []struct {
		ID, Path, Reason, Outcome, Code, Prefill, Decode string
		Total                                            float64 `json:"total_ms"`
		Phases                                           []struct {
			Name     string
			From, To float64
		}
	}
	Warnings []string
	Advice   struct{ Short, Arithmetic string }
}

func (r *rig) status() (s statusPage) {
	r.t.Helper()
	text := r.adminText("/status")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		r.t.Fatalf("%v in %s", err, text)
	}
	return s
}

// noticed reports whether a notice of the kind has the words.
func (s *statusPage) noticed(kind, words string) bool {
	return slices.ContainsFunc(s.Notices, func(n struct{ Kind, Text string }) bool { return n.Kind == kind && strings.Contains(n.Text, words) })
}

// GET /status shows the completions that have ended, by their phases, and nothing that they said.
func TestStatusShowsCompletions(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode = router.PDAlways }})
	const secret = "the launch code is 0000"
	for i, c := range forms(secret, 4) {
		r.expectWhole(c, r.call(c, "X-Request-Id", fmt.Sprint("seen", i)))
	}
	r.post("/v1/completions", `{"model":"sim"`, "X-Request-Id", "broken")
	r.await("counted", func() bool { return r.metric("xpyd_requests_total") == 5 && len(r.status().Lives) == 5 })
	s := r.status()
	if strings.Contains(r.adminText("/status"), secret[:10]) {
		t.Error("the page shows a prompt")
	}
	if !s.Ready || s.Line != "ok" || s.Version != "test" || len(s.Notices) != 0 || s.Window.OK != 4 || s.Window.TTFT.P50 <= 0 {
		t.Errorf("%+v", s)
	}
	if len(s.Pairs) != 1 || s.Pairs[0].Transfers != 4 || s.Pairs[0].Prefill != r.prefill[0].URL() || s.Pairs[0].Decode != r.decode[0].URL() {
		t.Errorf("pairs %+v", s.Pairs)
	}
	if got := s.Window.Ways["disaggregated"]["none"]; got != 4 {
		t.Errorf("ways %v", s.Window.Ways)
	}
	for _, l := range s.Lives {
		var names []string
		for i, p := range l.Phases {
			names = append(names, p.Name)
			if p.To < p.From || p.To > l.Total || i > 0 && p.From != l.Phases[i-1].To {
				t.Errorf("%s: phases %+v of %v ms", l.ID, l.Phases, l.Total)
			}
		}
		want := map[string]string{"seen1": "queue prefill handoff transfer stream", "seen3": "queue prefill handoff transfer stream", "broken": "queue"}[l.ID]
		if want == "" {
			want = "queue prefill handoff answer"
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", l.ID, got, want)
		}
		if l.ID == "broken" && (l.Outcome != "client_error" || l.Code == "" || l.Path != "") {
			t.Errorf("%+v", l)
		}
	}
}

// GET /status says what is wrong: an engine that is down, and why requests went to decode alone.
func TestStatusSaysWhatIsWrong(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		c.PD.Mode = router.PDAlways
		c.Health.Interval, c.Health.SuspectInterval = 20*time.Millisecond, 20*time.Millisecond
	}})
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultNoHandle, Leg: "P"}); err != nil {
		t.Fatal(err)
	}
	r.call(forms(prompt, 4)[0])
	r.await("noticed as degraded", func() bool { s := r.status(); return s.noticed("warn", "no_handle") })
	r.prefill[0].Kill()
	r.await("noticed as down", func() bool {
		s := r.status()
		return s.noticed("bad", "prefill "+r.prefill[0].URL()+" is down") && s.noticed("warn", "decode engines compute the prompts")
	})
	r.decode[0].Kill()
	r.await("noticed as not ready", func() bool { s := r.status(); return !s.Ready && s.noticed("bad", "not ready") })
	r.desk.Configured([]string{"a setting is odd"}, nil)
	if s := r.status(); len(s.Warnings) != 1 || s.Warnings[0] != "a setting is odd" {
		t.Errorf("warnings %q", s.Warnings)
	}
}

// Transfers that fail are counted by pair.
func TestStatusCountsFailedTransfers(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode = router.PDAlways }})
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultKVFail, Leg: "D", Count: 1}); err != nil {
		t.Fatal(err)
	}
	r.call(forms(prompt, 4)[1])
	r.await("counted", func() bool { s := r.status(); return len(s.Pairs) == 1 && s.Pairs[0].Failures == 1 })
}

// readEvents returns the events of a stream until it has one of each name.
func readEvents(t *testing.T, in *bufio.Reader, names ...string) map[string]json.RawMessage {
	t.Helper()
	events := map[string]json.RawMessage{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "event: ")
		if !ok {
			continue
		}
		data, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		events[name] = json.RawMessage(strings.TrimPrefix(data, "data: "))
		if !slices.ContainsFunc(names, func(n string) bool { return events[n] == nil }) {
			return events
		}
	}
}

// A browser gets the page without a token, and its figures only with the token.
func TestStatusPageAndToken(t *testing.T) {
	for _, token := range []string{"", "sesame"} {
		r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.AdminToken = token }})
		server := httptest.NewServer(r.admin())
		t.Cleanup(server.Close)
		get := func(path string, header ...string) *http.Response {
			req, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			resp, err := server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
			return resp
		}
		page := get("/", "Accept", "text/html,*/*")
		if page.StatusCode != 200 || page.Header.Get("Content-Type") != "text/html; charset=utf-8" || page.Header.Get("Content-Security-Policy") == "" || page.Header.Get("Vary") != "Accept" {
			t.Errorf("token %q: page: %d, %v", token, page.StatusCode, page.Header)
		}
		locked := map[bool]int{true: 401, false: 200}[token != ""]
		for path, want := range map[string]int{"/assets/main.js": 200, "/assets/nothing": 404, "/assets/": 404, "/assets/uplot/": 404, "/": locked, "/status": locked, "/status/events": locked, "/backends": locked} {
			if got := get(path).StatusCode; got != want {
				t.Errorf("token %q: %s: %d, want %d", token, path, got, want)
			}
		}
		resp := get("/status/events", "Authorization", "Bearer "+token)
		events := readEvents(t, bufio.NewReader(resp.Body), "state", "plots")
		var s statusPage
		if err := json.Unmarshal(events["state"], &s); err != nil || !s.Ready || len(s.Backends) != 2 {
			t.Errorf("token %q: %v in %s", token, err, events["state"])
		}
		var plots struct{ OK []float64 }
		if err := json.Unmarshal(events["plots"], &plots); err != nil || len(plots.OK) != 12 {
			t.Errorf("token %q: %v in %s", token, err, events["plots"])
		}
	}
}

// A process that has left its ports to another one ends the streams, so that viewers go to the other one.
func TestStatusStreamEndsWhenTheProcessRetires(t *testing.T) {
	r := newRig(t, rigOptions{})
	server := httptest.NewServer(r.admin())
	t.Cleanup(server.Close)
	resp, err := server.Client().Get(server.URL + "/status/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	readEvents(t, in, "state", "plots")
	if err := r.server.Retire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
}
