package sim_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// streamedBody requests 5 tokens of completion text: events 0 to 4 and [DONE].
func streamedBody(marker string) body {
	return body{"prompt": "a tale " + marker, "max_tokens": 5, "stream": true}
}

func TestStreamFaults(t *testing.T) {
	cases := []struct {
		marker string
		events int    // whole events, including error events and [DONE]
		end    string // of the raw answer; "-" if broken off without a clean end
		last   string // prefix of the last whole event
	}{
		{"[[D:die@0]]", 0, "-", ""},
		{"[[D:die@3:fin]]", 3, "-", `{"id"`},
		{"[[D:die@3:rst]]", -1, "-", ""},
		{"[[D:die@5]]", 5, "-", `{"id"`},
		{"[[D:cut@2]]", 2, "-", ""},
		{"[[D:error-cut@2]]", 3, "-", `{"error"`},
		{"[[D:error-done@3]]", 5, "0\r\n\r\n", "[DONE]"},
		{"[[D:error-first]]", 2, "0\r\n\r\n", "[DONE]"},
		{"[[D:zero]]", 1, "0\r\n\r\n", "[DONE]"},
		{"[[D:no-done]]", 5, "0\r\n\r\n", `{"id"`},
		{"[[D:no-finish]]", 6, "0\r\n\r\n", "[DONE]"},
		{"[[D:slice@3]]", 6, "0\r\n\r\n", "[DONE]"},
		{"[[D:drip=40,1ms]]", 6, "0\r\n\r\n", "[DONE]"},
		{"[[D:role-error]]", 2, "0\r\n\r\n", "[DONE]"},
		{"[[D:corrupt@5]]", 6, "0\r\n\r\n", "[DONE)"},
		{"[[engine-7:die@1]]", 1, "-", `{"id"`},
		{"[[P:die@1]]", 6, "0\r\n\r\n", "[DONE]"},
		{"[[other:die@1]]", 6, "0\r\n\r\n", "[DONE]"},
		{"[[D:die@17]]", 6, "0\r\n\r\n", "[DONE]"},
	}
	for _, tc := range cases {
		t.Run(tc.marker, func(t *testing.T) {
			e := start(t, sim.Options{Name: "engine-7"})
			raw := sendClosing(t, e, streamedBody(tc.marker)).readAll()
			got := wholeEvents(raw)
			if tc.events >= 0 && len(got) != tc.events {
				t.Errorf("%d events %q, want %d", len(got), got, tc.events)
			}
			if tc.events > 0 && !strings.HasPrefix(got[len(got)-1], tc.last) {
				t.Errorf("last event %q, want %q", got[len(got)-1], tc.last)
			}
			if clean := strings.HasSuffix(raw, "\r\n0\r\n\r\n"); clean == (tc.end == "-") {
				t.Errorf("clean end %v: %q", clean, raw)
			}
			if tc.marker == "[[D:no-finish]]" && strings.Contains(raw, `"finish_reason":"`) {
				t.Errorf("finished: %q", raw)
			}
		})
	}
}

// wholeEvents returns the payloads of the events that end as events do.
func wholeEvents(raw string) []string {
	var all []string
	for part := range strings.SplitSeq(raw, "data: ") {
		if payload, _, ok := strings.Cut(part, "\n\n"); ok && !strings.HasPrefix(part, "HTTP/") {
			all = append(all, payload)
		}
	}
	return all
}

func TestFaultsBeforeTheAnswer(t *testing.T) {
	for marker, want := range map[string]string{
		"[[D:rst]]":          "reset",
		"[[D:fin]]":          "EOF",
		"[[D:die@0:rst]]":    "reset",
		"[[D:die@0]]":        "EOF",
		"[[D:status=503]]":   "503",
		"[[D:status=429]]":   "429",
		"[[D:error-first]]":  "500",
		"[[D:error-done@1]]": "500",
		"[[D:zero]]":         "500",
		"[[D:delay=30ms]]":   "200",
		"[[D:nonsense]]":     "400",
		"[[D:role-error]]":   "500",
		"[[D:refuse]]":       "400 <nil>",
		"[[D:random=1,1]]":   "400 <nil>",
	} {
		t.Run(marker, func(t *testing.T) {
			e := start(t, sim.Options{})
			begin := time.Now()
			status, answer, err := tryPost(e.URL()+completionsPath, body{"prompt": "a tale " + marker})
			if got := fmt.Sprint(status, " ", err); !strings.Contains(got, want) {
				t.Errorf("got %s %s, want %s", got, answer, want)
			}
			if took := time.Since(begin); strings.Contains(marker, "delay") && took < 30*time.Millisecond {
				t.Errorf("answered after %v", took)
			}
		})
	}
}

func TestFaultsThatHang(t *testing.T) {
	for marker, want := range map[string]int{"[[D:hang]]": 0, "[[D:stall@2]]": 2} {
		t.Run(marker, func(t *testing.T) {
			stalled := make(chan struct{}, 1)
			e := start(t, sim.Options{Hook: func(ev sim.Event) {
				if ev.Phase == sim.PhaseStalled {
					stalled <- struct{}{}
				}
			}})
			c := send(t, e, completionsPath, streamedBody(marker))
			<-stalled // a client that leaves before meets no fault
			if n := len(e.Requests()); n != 0 {
				t.Errorf("%d requests have ended", n)
			}
			c.leave()
			await(t, "the request ends", func() bool { return len(e.Requests()) == 1 })
			if r := e.Requests()[0]; r.Events != want || !strings.HasPrefix(r.Outcome, "fault:") {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// A client whose connection ends finds its request among the engine's, in the order in which it asked.
func TestBrokenAnswersAreFiledBeforeTheyBreak(t *testing.T) {
	e := start(t, sim.Options{})
	for i, faults := 0, []string{"fin", "rst", "die@2", "cut@2", "error-cut@2"}; i < 200; i++ {
		fault := faults[i%len(faults)]
		if status, _, err := tryPost(e.URL()+completionsPath, streamedBody("[[D:"+fault+"]]")); err == nil {
			t.Fatalf("%s: %d and a clean end", fault, status)
		}
		want, _, _ := strings.Cut("fault:"+fault, "@")
		if all := e.Requests(); len(all) != i+1 || all[i].Outcome != want {
			t.Fatalf("%d requests filed after %d, want %s at the end: %+v", len(all), i+1, want, all)
		}
	}
}

func TestTruncatedAnswers(t *testing.T) {
	e := start(t, sim.Options{})
	for _, marker := range []string{"[[D:truncate@40]]", "[[D:badjson]]"} {
		status, answer, err := tryPost(e.URL()+completionsPath, body{"prompt": marker})
		if status != 200 || json.Valid(answer) {
			t.Errorf("%s: %d %q", marker, status, answer)
		}
		if truncated := err == io.ErrUnexpectedEOF; truncated != strings.Contains(marker, "truncate") {
			t.Errorf("%s: %v", marker, err)
		}
	}
}

func TestPrefillFaults(t *testing.T) {
	p, _ := pair(t, sim.Options{Lease: 100 * time.Millisecond})
	handleOf := func(marker string) string {
		status, answer := post(t, p.URL()+completionsPath, prefillBody(body{"prompt": marker}))
		var got struct {
			Handle json.RawMessage `json:"kv_transfer_params"`
		}
		decodeJSON(t, answer, &got)
		if status != 200 {
			t.Fatalf("%s: %d %s", marker, status, answer)
		}
		return string(got.Handle)
	}
	if got := handleOf("[[P:nohandle]]"); got != "null" || p.Ledger().Pinned != 0 {
		t.Errorf("nohandle: %s, %d blocks pinned", got, p.Ledger().Pinned)
	}
	for what, want := range map[string]string{
		"null": "null", "empty": "{}", "port": `"remote_port":"5600"`, "port-high": `"remote_port":65536`,
		"null-blocks": `"remote_block_ids":null`, "empty-group": `"remote_block_ids":[[]]`, "flag-false": `"do_remote_prefill":false`,
	} {
		if got := handleOf("[[P:badhandle=" + what + "]]"); !strings.Contains(got, want) {
			t.Errorf("badhandle=%s: %s, want %s", what, got, want)
		}
	}
	if got := handleOf("[[P:badhandle=no-host]]"); strings.Contains(got, "remote_host") {
		t.Errorf("badhandle=no-host: %s", got)
	}
	_, answer := post(t, p.URL()+completionsPath, prefillBody(body{"prompt": "[[P:cached=7]]"}))
	if !strings.Contains(string(answer), `"cached_tokens":7`) || !strings.Contains(string(answer), `"remote_prefill_cached_tokens":7`) {
		t.Errorf("cached=7: %s", answer)
	}
}

func TestKVFailFault(t *testing.T) {
	p, d := pair(t, sim.Options{Lease: 100 * time.Millisecond})
	for _, stream := range []bool{false, true} {
		b := textBody.with("prompt", "a tale [[D:kvfail]]").with("stream", stream)
		handle := prefill(t, p, completionsPath, b)
		status, answer := post(t, d.URL()+completionsPath, b.with("kv_transfer_params", handle))
		expectLoadFailure(t, status, answer, stream, false)
	}
	awaitFreed(t, p, "lease", 2)
}

func TestKillFault(t *testing.T) {
	for _, marker := range []string{"[[D:kill]]", "[[D:kill@2]]"} {
		e := start(t, sim.Options{})
		if _, answer, err := tryPost(e.URL()+completionsPath, streamedBody(marker)); err == nil {
			t.Errorf("%s: answered %q", marker, answer)
		}
		<-e.Died()
	}
}

func TestLateBytes(t *testing.T) {
	e := start(t, sim.Options{})
	if got := sendClosing(t, e, body{"prompt": "[[D:late]]"}).readAll(); strings.Count(got, "HTTP/1.1 200 OK") != 2 || !strings.HasSuffix(got, "late") {
		t.Errorf("answer %q", got)
	}
}

func TestEngineFaultHitsCountRequestsOfItsLeg(t *testing.T) {
	p, _ := pair(t, sim.Options{Lease: 50 * time.Millisecond})
	if err := p.SetFault(sim.Fault{Kind: sim.FaultStatus, Value: 503, Leg: "P", Count: 2}); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, b := range []body{textBody, prefillBody(textBody), prefillBody(textBody), prefillBody(textBody)} {
		status, _ := post(t, p.URL()+completionsPath, b)
		got = append(got, status)
	}
	if fmt.Sprint(got) != "[200 503 503 200]" {
		t.Errorf("statuses %v", got)
	}
}

func TestRefuseFault(t *testing.T) {
	e := start(t, sim.Options{})
	for range 2 {
		if err := e.SetFault(sim.Fault{Kind: sim.FaultRefuse}); err != nil {
			t.Fatal(err)
		}
		if nc, err := net.Dial("tcp", e.Addr()); err == nil {
			_ = nc.Close()
			t.Fatal("connected to an engine that refuses")
		}
		if err := e.SetFault(sim.Fault{}); err != nil {
			t.Fatal(err)
		}
		expectAlive(t, e)
	}
}

func TestParseFault(t *testing.T) {
	for in, want := range map[string]sim.Fault{
		"die@17:rst":     {Kind: "die", At: 17, End: "rst"},
		"status=503":     {Kind: "status", Value: 503},
		"delay=200ms":    {Kind: "delay", Delay: 200 * time.Millisecond},
		"badhandle=port": {Kind: "badhandle", Arg: "port"},
		"hang":           {Kind: "hang"},
		"drip=3,10ms":    {Kind: "drip", At: 3, Delay: 10 * time.Millisecond},
		"slow-accept=1s": {Kind: "slow-accept", Delay: time.Second},
		"random=0.25,42": {Kind: "random", Share: 0.25, Seed: 42},
		"random=1":       {Kind: "random", Share: 1},
	} {
		if got, err := sim.ParseFault(in); err != nil || got != want {
			t.Errorf("ParseFault(%q) = %+v, %v, want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "explode", "die@x", "die@-1", "die@3:bang", "status=9", "delay=fast", "badhandle=rubbish", ":rst",
		"drip", "drip=0,1ms", "drip=3,fast", "drip=x", "drip=3,-1s", "slow-accept", "slow-accept=soon", "random", "random=0", "random=1.5", "random=NaN", "random=0.1,-1", "random=0.1,x"} {
		if got, err := sim.ParseFault(in); err == nil {
			t.Errorf("ParseFault(%q) = %+v, want an error", in, got)
		}
	}
}

func TestControlEndpoints(t *testing.T) {
	p, d := pair(t, sim.Options{})
	handle := prefill(t, p, completionsPath, textBody)
	var ledger struct {
		Pinned  int
		FreedBy map[string]int `json:"freed_by"`
		Entries []struct {
			RequestID  string    `json:"request_id"`
			LeaseUntil time.Time `json:"lease_until"`
			FreedBy    string    `json:"freed_by"`
		}
	}
	get(t, p, "/sim/ledger", &ledger)
	if ledger.Pinned == 0 || len(ledger.Entries) != 1 || !ledger.Entries[0].LeaseUntil.After(time.Now()) {
		t.Errorf("ledger %+v", ledger)
	}
	post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle), "X-Request-Id", "rid-d")
	awaitFreed(t, p, "read", 1)
	var requests []map[string]any
	get(t, d, "/sim/requests", &requests)
	if len(requests) != 1 || requests[0]["request_id"] != "rid-d" || requests[0]["leg"] != "decode" ||
		requests[0]["remote_request_id"] != ledger.Entries[0].RequestID {
		t.Errorf("requests %v", requests)
	}
	if status, _ := post(t, d.URL()+"/sim/fault", body{"kind": "status", "value": 503}); status != 200 {
		t.Errorf("set a fault: %d", status)
	}
	if status, _ := post(t, d.URL()+completionsPath, textBody); status != 503 {
		t.Errorf("with the fault: %d", status)
	}
	for _, bad := range []body{{"kind": "explode"}, {"knd": "rst"}} {
		if status, _ := post(t, d.URL()+"/sim/fault", bad); status != 400 {
			t.Errorf("fault %v: %d, want 400", bad, status)
		}
	}
	for _, e := range []*sim.Engine{p, d} {
		if status, _ := post(t, e.URL()+"/sim/reset", nil); status != 200 {
			t.Errorf("reset: %d", status)
		}
		if l := e.Ledger(); len(l.Entries) != 0 || len(l.FreedBy) != 0 || len(e.Requests()) != 0 {
			t.Errorf("after reset: %+v", l)
		}
	}
	if status, _ := post(t, d.URL()+completionsPath, textBody); status != 200 {
		t.Errorf("after reset: %d", status)
	}
}

func get(t *testing.T, e *sim.Engine, path string, into any) {
	t.Helper()
	resp, err := http.Get(e.URL() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	decodeJSON(t, raw, into)
}
