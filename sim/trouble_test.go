package sim_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

func TestDripTakesItsTime(t *testing.T) {
	e := start(t, sim.Options{})
	for _, stream := range []bool{false, true} {
		b := streamedBody("[[D:drip=50,2ms]]").with("stream", stream)
		begin := time.Now()
		status, answer, err := tryPost(e.URL()+completionsPath, b)
		took := time.Since(begin)
		if plain := text(t, answer); status != 200 || err != nil || plain != sim.Text(b["prompt"].(string), 5) {
			t.Errorf("stream %v: %d %v %q", stream, status, err, plain)
		}
		if least := time.Duration(len(answer)/50-6) * 2 * time.Millisecond; took < least {
			t.Errorf("stream %v: %d bytes in %v, want at least %v", stream, len(answer), took, least)
		}
	}
}

func TestRoleThenError(t *testing.T) {
	e := start(t, sim.Options{})
	_, answer := post(t, e.URL()+"/v1/chat/completions", body{"messages": []any{body{"role": "user", "content": "a tale [[D:role-error]]"}}, "max_tokens": 5, "stream": true})
	got := events(answer)
	if len(got) != 3 || !strings.Contains(got[0], `"role":"assistant"`) || !strings.HasPrefix(got[1], `{"error"`) || got[2] != "[DONE]" {
		t.Errorf("events %q, want the role's, an error and [DONE]", got)
	}
}

func TestCorruptBreaksOneEventAlone(t *testing.T) {
	e := start(t, sim.Options{})
	_, answer := post(t, e.URL()+completionsPath, streamedBody("[[D:corrupt@2]]"))
	var valid []bool
	for _, ev := range events(answer) {
		valid = append(valid, json.Valid([]byte(ev)) || ev == "[DONE]")
	}
	if want := []bool{true, true, false, true, true, true}; !slices.Equal(valid, want) {
		t.Errorf("events that parse: %v, want %v", valid, want)
	}
	if _, answer := post(t, e.URL()+completionsPath, streamedBody("[[D:corrupt@0]]").with("stream", false)); json.Valid(answer) {
		t.Errorf("a whole answer that parses: %s", answer)
	}
	if r := e.Requests()[1]; r.Outcome != "fault:corrupt" {
		t.Errorf("record %+v", r)
	}
}

func TestSlowAccept(t *testing.T) {
	e := start(t, sim.Options{})
	const delay = 300 * time.Millisecond
	served := func() time.Duration { // on a connection of its own
		begin := time.Now()
		post(t, e.URL()+completionsPath, streamedBody(""))
		return time.Since(begin)
	}
	if err := e.SetFault(sim.Fault{Kind: sim.FaultAccept, Delay: delay}); err != nil {
		t.Fatal(err)
	}
	if took := served(); took < delay {
		t.Errorf("served after %v, want %v at least", took, delay)
	}
	if err := e.SetFault(sim.Fault{}); err != nil {
		t.Fatal(err)
	}
	best := served()
	for range 9 { // a busy machine can only delay
		if best >= delay {
			best = min(best, served())
		}
	}
	if best >= delay {
		t.Errorf("served after %v without the fault", best)
	}
	if err := e.SetFault(sim.Fault{Kind: sim.FaultAccept, Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	sendClosing(t, e, streamedBody("")) // waits while the engine closes
}

// outcomes are the results of a run of requests under random faults.
func outcomes(t *testing.T, f sim.Fault) []string {
	t.Helper()
	p, _ := pair(t, sim.Options{Lease: 50 * time.Millisecond})
	if err := p.SetFault(f); err != nil {
		t.Fatal(err)
	}
	patience := 2 * time.Second // the longest delay that is drawn is 0.2 s, and the rest is for a busy machine
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range 24 {
		raw, err := json.Marshal(prefillBody(textBody).with("n", 1))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := client.Post(p.URL()+completionsPath, "application/json", strings.NewReader(string(raw))); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body) // a fault may have cut it
			_ = resp.Body.Close()
		}
		await(t, "recorded", func() bool {
			all := p.Requests()
			return len(all) == i+1 && all[i].Outcome != ""
		})
	}
	var all []string
	for _, r := range p.Requests() {
		all = append(all, fmt.Sprint(r.Status, " ", strings.ReplaceAll(r.Outcome, "aborted", "fault:hang")))
	}
	return all
}

func TestRandomFaultsAreTheSeeds(t *testing.T) {
	var runs [3][]string
	t.Run("runs", func(t *testing.T) { // together, because a fault that hangs costs the client its patience
		for i, seed := range []uint64{7, 7, 8} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				runs[i] = outcomes(t, sim.Fault{Kind: sim.FaultRandom, Share: 0.5, Seed: seed})
			})
		}
	})
	one, again, other := runs[0], runs[1], runs[2]
	if !slices.Equal(one, again) {
		t.Errorf("one seed, two runs:\n%q\n%q", one, again)
	}
	if slices.Equal(one, other) {
		t.Errorf("two seeds, one run: %q", one)
	}
	kinds := slices.Compact(slices.Sorted(slices.Values(one)))
	if len(kinds) < 5 || !slices.Contains(kinds, "200 ok") {
		t.Errorf("outcomes %q, want several faults and some successes", kinds)
	}
}

func TestRestartByRequest(t *testing.T) {
	p, _ := pair(t, sim.Options{})
	engineID := func() string {
		var h struct {
			ID string `json:"remote_engine_id"`
		}
		decodeJSON(t, prefill(t, p, completionsPath, textBody), &h)
		return h.ID
	}
	before, died := engineID(), p.Died()
	if status, answer := post(t, p.URL()+"/sim/restart", nil); status != 200 {
		t.Fatalf("restart: %d %s", status, answer)
	}
	<-died
	select {
	case <-p.Died(): // waits until it is up again
		t.Fatal("dead after a restart")
	default:
	}
	if l := p.Ledger(); l.Pinned != 0 {
		t.Errorf("%d blocks pinned over a restart", l.Pinned)
	}
	if after := engineID(); after == before {
		t.Errorf("engine id %s before and after", after)
	}
}

func TestRefuseOutlivesARestart(t *testing.T) {
	e := start(t, sim.Options{})
	if err := e.SetFault(sim.Fault{Kind: sim.FaultRefuse}); err != nil {
		t.Fatal(err)
	}
	if err := e.Restart(); err != nil {
		t.Fatal(err)
	}
	if status, _, err := tryPost(e.URL()+completionsPath, streamedBody("")); err == nil {
		t.Errorf("answered %d", status)
	}
	if err := e.SetFault(sim.Fault{}); err != nil {
		t.Fatal(err)
	}
	expectAlive(t, e)
}
