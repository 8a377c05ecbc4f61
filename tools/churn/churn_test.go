package churn

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
	"xpyd/tools/completion"
)

// A request that goes to decode alone never reaches a phase of prefill. One that was prefilled
// does, although its decode engine may be faster than the hook.
func TestBarrierTellsOfRequestsThatGoToDecodeAlone(t *testing.T) {
	for name, c := range map[string]struct {
		phase  phase
		loaded bool
		events []sim.Phase
		want   error
	}{
		"prefill skipped":        {phase: phasePrefill, events: []sim.Phase{sim.PhaseDecodeReceived}, want: errAlone},
		"blocks never pulled":    {phase: phaseDecode, loaded: true, events: []sim.Phase{sim.PhaseDecodeReceived}, want: errAlone},
		"decode alone will do":   {phase: phaseDecode, events: []sim.Phase{sim.PhaseDecodeReceived}},
		"prefilled":              {phase: phaseAnswered, events: []sim.Phase{sim.PhasePrefillStart, sim.PhasePrefillAnswered}},
		"prefilled, blocks read": {phase: phaseDecode, loaded: true, events: []sim.Phase{sim.PhasePrefillStart, sim.PhaseDecodeReceived, sim.PhaseDecodeLoaded}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBarrier(&counts{})
			v := &visit{id: "c-1", phase: c.phase, loaded: c.loaded, entered: make(chan struct{}), left: make(chan struct{}), alone: make(chan struct{})}
			b.expect(v)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for _, p := range c.events {
					b.hook(sim.Event{Phase: p, RequestID: "c-1-0123abcd"})
				}
			}()
			if err := v.awaitPhase(); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			close(v.left)
			<-done
		})
	}
}

// For a hit, the engine must reach the phase, the client must leave, and the engine must return, in
// this order.
func TestBarrierCountsOnlyClientsThatLeftInThePhase(t *testing.T) {
	tally := &counts{}
	b := newBarrier(tally)
	v := &visit{id: "c-1", phase: phasePrefillEnd, manner: completion.MannerReset, entered: make(chan struct{}), left: make(chan struct{})}
	b.expect(v)
	for _, ev := range []sim.Event{
		{Phase: sim.PhasePrefillStart, RequestID: "c-1-0123abcd"},          // another phase
		{Phase: sim.PhasePrefillEnding, RequestID: "c-2-0123abcd"},         // another client
		{Phase: sim.PhasePrefillEnding, RequestID: "c-1"},                  // no leg
		{Phase: sim.PhasePrefillEnding, RequestID: "c-1-0123abcd-release"}, // the release of a leg
	} {
		b.hook(ev) // blocks forever if it takes the event for the phase
	}
	done := make(chan struct{})
	go func() {
		b.hook(sim.Event{Phase: sim.PhasePrefillEnding, RequestID: "c-1-0123abcd"})
		close(done)
	}()
	if err := v.awaitPhase(); err != nil {
		t.Fatal(err)
	}
	if n := tally.total(phasePrefillEnd); n != 0 {
		t.Errorf("%d hits before the client left", n)
	}
	close(v.left)
	<-done
	b.hook(sim.Event{Phase: sim.PhasePrefillEnding, RequestID: "c-1-4567abcd"}) // a second round is no second hit
	if n := tally.total(phasePrefillEnd); n != 1 {
		t.Errorf("%d hits, want 1", n)
	}
	for _, tc := range []struct {
		alone, never bool
		want         int    // phases that are not as expected
		says         string // what the report says of one of them
	}{
		{false, false, int(phases) - 1, "phase answered was hit 0 times, wanted 1"}, // prefill_end was hit
		{true, false, int(phases) - 3, "phase decode was hit 0 times, wanted 1"},
		{true, true, int(phases) - 2, "phase prefill_end was hit 1 times, and no request was to have a prefill"},
	} {
		p := tally.problems(Options{MinPerPhase: 1, Alone: tc.alone, Never: tc.never})
		if len(p) != tc.want || !slices.Contains(p, tc.says) {
			t.Errorf("alone %v, never %v: problems %q, want %d with %q", tc.alone, tc.never, p, tc.want, tc.says)
		}
	}
}

func TestCensusSeesAGoroutineAndADescriptor(t *testing.T) {
	base, err := quietest(50 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	go func() { <-stop }()
	now, err := settle(base, 100*time.Millisecond)
	if err != nil || now.within(base) {
		t.Errorf("census %+v is within %+v, error %v", now, base, err)
	}
	if now.fds <= base.fds || !strings.Contains(now.grown(base), "TestCensusSeesAGoroutineAndADescriptor") {
		t.Errorf("descriptors %d -> %d, grown %q", base.fds, now.fds, now.grown(base))
	}
	close(stop)
	srv.Close()
	if now, err = settle(base, time.Minute); err != nil || !now.within(base) {
		t.Errorf("census %+v is not back within %+v, error %v", now, base, err)
	}
}

// The counter reads the engines' log lines by their text, so the texts must match.
func TestRecordCounterReadsTheEnginesLines(t *testing.T) {
	var c recordCounter
	lines := json.NewEncoder(&c)
	for _, rec := range []sim.Record{
		{Outcome: "ok"}, {HandleReuse: true, Outcome: "ok"}, {WrongKV: true, Outcome: "ok"}, {Outcome: "stranded"}, {Outcome: "dead"},
	} {
		if err := lines.Encode(rec); err != nil {
			t.Fatal(err)
		}
	}
	if p := c.problems(); c.total() != 5 || len(p) != 4 {
		t.Errorf("%d lines, problems %q: want one of each kind", c.total(), p)
	}
}
