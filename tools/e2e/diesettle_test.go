package main

import (
	"testing"
	"time"
)

// Only whole answers whose leg was cut may have cost a decode engine blocks, and only that engine, and only with a
// connector whose row says so.
func TestBlocksThatADecodeEngineMayLose(t *testing.T) {
	const again = "round failed, another one begins"
	for _, tc := range []struct {
		name    string
		forgets bool
		stream  bool
		message string
		want    float64
	}{
		{"cut", true, false, again, 10},
		{"a stream", true, true, again, 0},
		{"not cut", true, false, "", 0},
		{"another connector", false, false, again, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lines := []map[string]any{
				{"request_id": "other", "message": "completion", "prompt_tokens": 900.0},
				{"request_id": "one", "message": tc.message},
				{"request_id": "one", "message": "completion", "prompt_tokens": 301.0},
			}
			asked, idle := map[station][]time.Time{{stepRequest, "one"}: {time.Now()}}, map[station][]time.Time{}
			m := &mortals{t: &trial{fleet: &fleet{opts: options{kv: connector{forgets: tc.forgets}}}}}
			m.rd = [2]*relay{{seen: asked}, {seen: idle}}
			m.scenes = map[string][]*teller{"frozen": {{id: "one", ask: ask{stream: tc.stream}}}}
			m.noteLost("frozen", lines)
			if m.lost != [2]float64{tc.want, 0} {
				t.Errorf("%v may be lost, want %v on the first", m.lost, tc.want)
			}
		})
	}
}

// Blocks without a handle wait for the time limit of the prefill engine, and nothing else waits longer.
func TestHowLongBlocksMayStay(t *testing.T) {
	for _, kv := range connectors() {
		want := dieRelease
		if kv.together {
			want = leaseWait
		}
		if p, d := kv.holds("prefill"), kv.holds("decode"); p != want || d != dieRelease {
			t.Errorf("%s: %v and %v", kv.name, p, d)
		}
	}
}
