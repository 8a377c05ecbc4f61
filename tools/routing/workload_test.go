package routing

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

const testLength = 4 * time.Second

func mustTrace(t *testing.T, text string) *trace {
	t.Helper()
	tr, err := readTrace(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

const smallTrace = `{"timestamp": 0, "input_length": 1000, "output_length": 200, "hash_ids": [7, 8]}
{"timestamp": 3000, "input_length": 1024, "output_length": 5, "hash_ids": [7, 9]}

{"timestamp": 3000, "input_length": 600, "output_length": 0, "hash_ids": [7, 8]}
`

// All contenders, and all later runs, must see the same requests.
func TestRequestsAreTheSameFromTheSameSeed(t *testing.T) {
	on := topology{2, 2}
	for _, w := range workloads(mustTrace(t, smallTrace)) {
		w.length = 0
		a, b, other := draw(w, on, testLength, 1), draw(w, on, testLength, 1), draw(w, on, testLength, 2)
		if len(a.requests) < 2 || !reflect.DeepEqual(a.requests, b.requests) || !reflect.DeepEqual(a.oracle, b.oracle) {
			t.Errorf("%s: %d requests of seed 1, then %d, and not the same", w.name, len(a.requests), len(b.requests))
		}
		if w.name != "trace" && reflect.DeepEqual(a.requests, other.requests) {
			t.Errorf("%s: seeds 1 and 2 give the same", w.name)
		}
		for i, q := range a.requests {
			if q.at >= testLength || i > 0 && q.at < a.requests[i-1].at {
				t.Errorf("%s: request %d at %v", w.name, i, q.at)
			}
		}
	}
}

// The oracle knows the same about a prompt as the engines read from the body.
func TestRequestIsWhatTheEngineCounts(t *testing.T) {
	e, err := sim.Start(sim.Options{Model: model}.Fast())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, w := range workloads(nil)[:4] {
		q := draw(w, topology{1, 1}, testLength, 1).requests[0]
		var a answer
		if err := a.askOnce(t, e.Addr(), &q); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		records := e.Requests()
		if got := records[len(records)-1].PromptTokens; got != q.tokens {
			t.Errorf("%s: the engine counts %d tokens, the workload %d", w.name, got, q.tokens)
		}
		if len(q.blocks) != q.tokens/blockTokens {
			t.Errorf("%s: %d full blocks of %d tokens", w.name, len(q.blocks), q.tokens)
		}
	}
}

func TestBusynessOfTheOracleIsAsAsked(t *testing.T) {
	for _, w := range workloads(nil) {
		w.length = 0
		s := draw(w, topology{4, 4}, 20*time.Second, 1)
		engines := 4.0
		if w.whole {
			engines = 8
		}
		busy := s.oracle[computedTokens] / (s.length - s.warm).Seconds() / (engines * w.engines.Speed)
		if busy < w.load*0.85 || busy > w.load*1.15 {
			t.Errorf("%s: the oracle's engines are busy by %.2f, want %.2f", w.name, busy, w.load)
		}
	}
}

// Before and after a change there must be something to compare.
func TestTransfersChangeInTheMiddle(t *testing.T) {
	for _, w := range workloads(nil) {
		if w.slower > 0 && (w.slower < warmTime(w.length)+15*time.Second || w.length < w.slower+followTime+30*time.Second) {
			t.Errorf("%s: of %v, warm until %v, the change comes after %v", w.name, w.length, warmTime(w.length), w.slower)
		}
	}
}

func TestChatsExtendTheirLastTurn(t *testing.T) {
	last := map[string]*request{}
	turns := 0
	s := draw(workloads(nil)[1], topology{4, 4}, 15*time.Second, 1)
	for i := range s.requests {
		q := &s.requests[i]
		if p := last[q.session]; p != nil {
			turns++
			if n := len(p.blocks) - 1; len(q.blocks) < n || q.blocks[n-1] != p.blocks[n-1] {
				t.Fatalf("%s: a turn of %d tokens does not begin with the one of %d before it", q.session, q.tokens, p.tokens)
			}
		}
		last[q.session] = q
	}
	if turns < 20 {
		t.Errorf("%d turns after the first of a chat", turns)
	}
}

func TestBurstsKeepTheOrder(t *testing.T) {
	for _, tc := range []struct{ at, want time.Duration }{
		{0, 0}, {2500 * time.Millisecond, time.Second}, {1250 * time.Millisecond, 500 * time.Millisecond},
		{3750 * time.Millisecond, 3 * time.Second}, {5 * time.Second, 5 * time.Second}, {7500 * time.Millisecond, 6 * time.Second},
	} {
		if got := inBursts(tc.at); got != tc.want {
			t.Errorf("%v is moved to %v, want %v", tc.at, got, tc.want)
		}
	}
}

func TestTopology(t *testing.T) {
	if got, err := parseTopology("2P16D"); err != nil || got != (topology{2, 16}) || got.String() != "2P16D" {
		t.Errorf("2P16D: %v, error %v", got, err)
	}
	for _, text := range []string{"", "4P", "0P1D", "1P0D", "4P4Dx", "4p4d", "-1P2D"} {
		if got, err := parseTopology(text); err == nil {
			t.Errorf("%q: taken as %v", text, got)
		}
	}
}

func TestTraceGivesEqualTextForEqualIDs(t *testing.T) {
	tr := mustTrace(t, smallTrace)
	g := &generator{rate: 100, length: testLength}
	tr.generate(g)
	requests := requestsOf(g.turns)
	if len(requests) != 3 || requests[1].at == 0 || requests[0].output != traceOutput || requests[2].output != 1 {
		t.Fatalf("requests %+v", g.turns)
	}
	var prompts []string
	for _, q := range requests {
		var body struct{ Messages []sim.Message }
		if err := json.NewDecoder(bytes.NewReader(q.body)).Decode(&body); err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, body.Messages[0].Content)
	}
	block := traceBlock * tokenBytes
	if len(prompts[0]) != 1000*tokenBytes || prompts[0][:block] != prompts[1][:block] || !strings.HasPrefix(prompts[0], prompts[2]) || prompts[0][block:block+64] == prompts[1][block:block+64] {
		t.Error("equal ids do not give equal text, or different ones do")
	}
}

func TestTraceThatIsNone(t *testing.T) {
	ok := `{"timestamp": 10, "input_length": 512, "output_length": 5, "hash_ids": [1]}` + "\n"
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "0 requests"},
		{"one request", ok, "1 requests"},
		{"no JSON", ok + "PK\x03", "line 2"},
		{"wrong type", `{"timestamp": 1, "input_length": "many", "output_length": 5, "hash_ids": [1]}`, "line 1: json: cannot unmarshal string into Go struct field traceRow.input_length"},
		{"no timestamp", `{"input_length": 512, "output_length": 5, "hash_ids": [1]}`, "line 1: timestamp"},
		{"negative timestamp", `{"timestamp": -1, "input_length": 512, "output_length": 5, "hash_ids": [1]}`, "line 1: timestamp"},
		{"back in time", ok + strings.Replace(ok, "10", "9", 1), "line 2: timestamp 9 is before"},
		{"no input", ok + `{"timestamp": 11, "input_length": 0, "output_length": 5, "hash_ids": []}`, "line 2: input_length"},
		{"no output", `{"timestamp": 1, "input_length": 512, "hash_ids": [1]}`, "line 1: output_length"},
		{"too few ids", `{"timestamp": 1, "input_length": 513, "output_length": 5, "hash_ids": [1]}`, "line 1: hash_ids: 1 blocks of 512 tokens are not what input_length 513 takes"},
		{"too long", strings.Repeat(" ", 17<<20), "token too long"},
	} {
		if _, err := readTrace(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", tc.name, err, tc.want)
		}
	}
}
