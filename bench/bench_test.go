package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/bench/client"
	"xpyd/bench/dataset"
	"xpyd/bench/load"
	"xpyd/bench/result"
	"xpyd/sim"
)

// engine is a simulated engine that ends with the test.
func engine(t *testing.T, o sim.Options) *sim.Engine {
	t.Helper()
	e, err := sim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// options are those of a small load of n requests, all at once.
func options(url string, n int) Options {
	return Options{
		Client:          client.Options{URL: url, API: client.Completions, IgnoreEOS: true, Stall: 5 * time.Second, Timeout: 20 * time.Second},
		Dataset:         dataset.Options{Kind: dataset.Random, InputLen: 64, OutputLen: 8},
		Load:            load.Plan{Rate: math.Inf(1), Burstiness: 1, Count: n},
		RequestIDPrefix: "bench-", Metrics: []string{result.TTFT}, Percentiles: []float64{99}, Seed: 5,
	}
}

func run(t *testing.T, ctx context.Context, o Options) *result.Run {
	t.Helper()
	b, err := Prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	r := b.Run(ctx, func(*result.Record) { told++ })
	if told != len(r.Records) {
		t.Errorf("told of %d requests, recorded %d", told, len(r.Records))
	}
	return r
}

// TestCountsAreTheServers: the counts of the run are those of the engine's requests and answers.
func TestCountsAreTheServers(t *testing.T) {
	for _, api := range []string{client.Completions, client.Chat} {
		e := engine(t, sim.Options{}.Fast())
		o := options(e.URL(), 30)
		o.Client.API, o.Warmups = api, 2
		r := run(t, t.Context(), o)
		if err := r.Verdict(); err != nil {
			t.Fatal(err)
		}
		tokens := 0
		for i, rec := range r.Records {
			if rec.ID != fmt.Sprintf("bench-%d", i) || api == client.Completions && rec.Prompt != 64 || rec.Output != 8 || len(rec.ITLUS) != 7 {
				t.Fatalf("%s: record %+v", api, rec)
			}
			tokens += rec.Prompt
		}
		if total := r.Totals; total.Completed != 30 || total.InputTokens != tokens || total.OutputTokens != 240 || r.Config.Model != "sim" {
			t.Errorf("%s: totals %+v", api, total)
		}
		if n := len(e.Requests()); n != 32 {
			t.Errorf("%s: the engine was asked %d times", api, n)
		}
	}
}

// inSome runs a look at times until nothing is wrong with it, ten times at most: a machine that stalls
// spoils one or two looks, and a wrong tool is wrong in each.
func inSome(t *testing.T, look func() (wrong []string)) {
	t.Helper()
	var wrong []string
	for range 10 {
		if wrong = look(); len(wrong) == 0 {
			return
		}
	}
	t.Errorf("each of ten times, the last: %s", strings.Join(wrong, "; "))
}

// TestTimesAreTheEngines: the medians are the engine's known times of a prefill and of a token.
func TestTimesAreTheEngines(t *testing.T) {
	e := engine(t, sim.Options{PrefillTokensPerSecond: 1600, TokenLatency: 20 * time.Millisecond, MaxBatchedTokens: -1})
	inSome(t, func() (wrong []string) {
		o := options(e.URL(), 6)
		o.Seed = uint64(len(e.Requests())) // other prompts each time: none is cached
		o.Load.Concurrency = 1
		r := run(t, t.Context(), o)
		for metric, want := range map[string]float64{result.TTFT: 40, result.TPOT: 20, result.ITL: 20, result.E2EL: 180} {
			if got := r.Totals.MS[metric].Median; got < want*0.8 || got > want*1.5+10 {
				wrong = append(wrong, fmt.Sprintf("%s: median %.2f ms, want %.0f", metric, got, want))
			}
		}
		if r.Totals.MostOpen != 1 {
			t.Errorf("%d at once", r.Totals.MostOpen)
		}
		return wrong
	})
}

// TestSlowServerIsSlowInAnOpenLoop: requests that are due while the server is busy count from
// when they were due, and the server's queue does not count as the tool's lateness.
func TestSlowServerIsSlowInAnOpenLoop(t *testing.T) {
	e := engine(t, sim.Options{MaxSeqs: 1, TokenLatency: 10 * time.Millisecond, PrefillTokensPerSecond: math.Inf(1)})
	inSome(t, func() (wrong []string) {
		o := options(e.URL(), 10)
		o.Load.Rate, o.Load.Burstiness = 100, math.Inf(1)
		r := run(t, t.Context(), o)
		if err := r.Verdict(); err != nil {
			t.Fatal(err)
		}
		if longest := r.Totals.MS[result.E2EL].Max; longest < 500 {
			t.Errorf("the last of ten answers of 70 ms, one at a time, took %.0f ms", longest)
		}
		if late := r.Totals.MS[result.Lateness].Median; late > 50 {
			wrong = append(wrong, fmt.Sprintf("the tool is %.2f ms late", late))
		}
		return wrong
	})
}

// TestFailuresAreCounted: if a server fails some requests, these fail by their codes, the others do
// not, and no failure is in the figures.
func TestFailuresAreCounted(t *testing.T) {
	e := engine(t, sim.Options{}.Fast())
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/completions") && n.Add(1)%4 == 0 {
			http.Error(w, `{"error":{"message":"queue full"}}`, http.StatusTooManyRequests)
			return
		}
		relay(w, r, e.URL())
	}))
	defer server.Close()
	r := run(t, t.Context(), options(server.URL, 40))
	if total := r.Totals; total.Completed != 30 || total.Failed != 10 || total.Failures["http_429"] != 10 || total.OutputTokens != 240 || total.Events != 240 {
		t.Errorf("totals %+v", total)
	}
	if err := e.SetFault(sim.Fault{Kind: sim.FaultNoDone}); err != nil {
		t.Fatal(err)
	}
	r = run(t, t.Context(), options(e.URL(), 5))
	if err := r.Verdict(); err == nil || err.Error() != "no request succeeded, 5 failed" || r.Totals.Failures[client.FailNoDone] != 5 {
		t.Errorf("%v, totals %+v", err, r.Totals)
	}
}

func relay(w http.ResponseWriter, r *http.Request, url string) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, url+r.URL.Path, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = resp.Body.Close() }()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// TestInterruptionKeepsWhatWasMeasured: whole answers count, and those broken off are counted apart. Of
// four at once the first eight are answered, and the run is broken off when the tenth comes, after six.
func TestInterruptionKeepsWhatWasMeasured(t *testing.T) {
	e := engine(t, sim.Options{}.Fast())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/completions") {
			relay(w, r, e.URL())
			return
		}
		switch i := n.Add(1); {
		case i <= 8:
			relay(w, r, e.URL())
			return
		case i == 10:
			cancel()
		}
		_, _ = io.Copy(io.Discard, r.Body) // net/http tells of a client that left only after that
		<-r.Context().Done()
	}))
	defer server.Close()
	o := options(server.URL, 40)
	o.Client.Timeout = time.Minute
	o.Load.Concurrency, o.Dataset.InputLen = 4, 8
	r := run(t, ctx, o)
	total := r.Totals
	if !r.Interrupted || total.Completed < 6 || total.Completed > 8 || total.Cut < 2 || total.Failed != 0 || r.Unsent != 40-len(r.Records) {
		t.Errorf("interrupted %v, unsent %d of %d recorded, totals %+v", r.Interrupted, r.Unsent, len(r.Records), total)
	}
	if err := r.Verdict(); err == nil || !strings.HasPrefix(err.Error(), "interrupted after ") {
		t.Error(err)
	}
}

// TestBusyMachineIsSeen: a process that is too busy to read wakes up late, and says so.
func TestBusyMachineIsSeen(t *testing.T) {
	inSome(t, func() (wrong []string) {
		p := startPulse()
		time.Sleep(20 * beat)
		if late := p.end(); late < 0 || late > time.Second {
			wrong = append(wrong, fmt.Sprintf("an idle process wakes up %v late", late))
		}
		return wrong
	})
	held := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(held)
	inSome(t, func() (wrong []string) {
		p := startPulse()
		for end := time.Now().Add(20 * beat); time.Now().Before(end); {
			for spin := time.Now(); time.Since(spin) < 3*beat; { // the pulse waits for this goroutine's turn to end
			}
			runtime.Gosched()
		}
		if late := p.end(); late < beat/2 {
			wrong = append(wrong, fmt.Sprintf("a process that computes wakes up %v late", late))
		}
		return wrong
	})
	r := &result.Run{WakeP99US: 200_001, Config: result.Config{MaxLateUS: 200_000}, Records: []result.Record{{Output: 1}}}
	if r.Sum(); !errors.Is(r.Verdict(), result.ErrSlow) {
		t.Error(r.Verdict())
	}
}

// TestLateToolFailsItsRun: a run fails if the tool was late. The times of its requests still count from
// when they were due.
func TestLateToolFailsItsRun(t *testing.T) {
	r := &result.Run{DurationUS: 1e6, Config: result.Config{MaxLateUS: 1000}}
	for range 50 {
		r.Records = append(r.Records, result.Record{SentUS: 900, TTFTUS: 2000, E2ELUS: 3000, Output: 2})
	}
	if r.Sum(); r.Verdict() != nil {
		t.Error(r.Verdict())
	}
	r.Records[7].SentUS, r.Records[8].SentUS = 9000, 9000
	if r.Sum(); !errors.Is(r.Verdict(), result.ErrLate) {
		t.Error("two late requests of 50 pass a bound of 1 %")
	}
}

func TestPromptsThatRunOutAreUsedAgain(t *testing.T) {
	e := engine(t, sim.Options{}.Fast())
	o := options(e.URL(), 0)
	o.Load.Duration, o.Load.Concurrency, o.Dataset.InputLen, o.Dataset.OutputLen = 200*time.Millisecond, 4, 4, 1
	b, err := Prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b.bodies = b.bodies[:3]
	inSome(t, func() (wrong []string) {
		r := b.Run(t.Context(), func(*result.Record) {})
		if len(r.Records) <= 3 {
			return []string{fmt.Sprintf("%d requests in %v", len(r.Records), o.Load.Duration)}
		}
		if r.Prompts.Reused != len(r.Records)-3 || r.Unsent != 0 || r.Totals.Failed != 0 {
			t.Errorf("%d of %d prompts used again, totals %+v", r.Prompts.Reused, len(r.Records), r.Totals)
		}
		return nil
	})
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"goodput itl:3: want ttft, tpot or e2el and a bound in ms":         func(o *Options) { o.Goodput = map[string]float64{"itl": 3} },
		"percentile 101: want 0 to 100":                                    func(o *Options) { o.Percentiles = []float64{101} },
		"the bounds of a request and of a stall want more than 0":          func(o *Options) { o.Client.Stall = 0 },
		`dataset "hf": want one of [random prompts sonnet sharegpt trace]`: func(o *Options) { o.Dataset.Kind = "hf" },
	} {
		o := options("http://127.0.0.1:1", 1)
		change(&o)
		if err := o.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPrimedPromptsAreCached: every prompt was sent before, so the engine computes only what no cache
// holds. The requests sent before count in no figure.
func TestPrimedPromptsAreCached(t *testing.T) {
	e := engine(t, sim.Options{}.Fast())
	o := options(e.URL(), 12)
	o.Prime = true
	r := run(t, t.Context(), o)
	if n := len(e.Requests()); n != 24 || !r.Config.Primed || r.Totals.Completed != 12 || r.Totals.CachedTokens < 12*48 {
		t.Errorf("%d requests, totals %+v", n, r.Totals)
	}
	if err := e.SetFault(sim.Fault{Kind: sim.FaultStatus, Value: http.StatusServiceUnavailable}); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "have the prompts cached: http_503: ") {
		t.Error(err)
	}
}

// TestTimesHaveTheirOwnSeed: it allows different prompts at the same times.
func TestTimesHaveTheirOwnSeed(t *testing.T) {
	e := engine(t, sim.Options{}.Fast())
	var dues [2][]int64
	var sent [2][][]byte
	for i := range 2 {
		o := options(e.URL(), 20)
		o.Load.Rate, o.Seed, o.TimesSeed = 400, uint64(10+i), 7
		b, err := Prepare(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		sent[i] = b.bodies
		for _, rec := range b.Run(t.Context(), func(*result.Record) {}).Records {
			dues[i] = append(dues[i], rec.DueUS)
		}
	}
	if !slices.Equal(dues[0], dues[1]) || bytes.Equal(sent[0][0], sent[1][0]) {
		t.Errorf("dues %v and %v", dues[0], dues[1])
	}
}
