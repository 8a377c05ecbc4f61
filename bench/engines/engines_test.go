package engines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/bench/result"
	"xpyd/sim"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Spec{
		"P=http://a:1/":         {Name: "P", Role: Prefill, URL: "http://a:1"},
		"D2:4=https://b:2/v1":   {Name: "D2", Role: Decode, URL: "https://b:2", GPUs: 4},
		"node-3:0.5=http://c:3": {Name: "node-3", URL: "http://c:3", GPUs: 0.5},
		"prefill-a=http://c:3":  {Name: "prefill-a", Role: Prefill, URL: "http://c:3"},
		"Decode=http://c:3":     {Name: "Decode", Role: Decode, URL: "http://c:3"},
		"plain=http://c:3":      {Name: "plain", URL: "http://c:3"},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"http://a:1":             `"http://a:1": want NAME=URL or NAME:GPUS=URL`,
		"P":                      `"P": want NAME=URL or NAME:GPUS=URL`,
		"P:x=http://a:1":         `"P:x": the GPUs of P: want a number above 0`,
		"P:-1=http://a:1":        `"P:-1": the GPUs of P: want a number above 0`,
		"P:NaN=http://a:1":       `"P:NaN": the GPUs of P: want a number above 0`,
		"P=a:1":                  `"P": URL "a:1": want http://host:port`,
		"P=http://me:sesame@a:1": `"P": the URL has a user or a password: want http://host:port`,
	} {
		if _, err := Parse(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// recorded is a page of a real vLLM.
func recorded(t *testing.T, path string) page {
	t.Helper()
	b, err := os.ReadFile("../../sim/testdata/" + path)
	if err != nil {
		t.Fatal(err)
	}
	_, answer, _ := bytes.Cut(b, []byte(strings.Repeat("=", 78)+"\n"))
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := readPage(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPagesOfVLLM: pages of vLLM 0.32 give its figures and its line.
func TestPagesOfVLLM(t *testing.T) {
	d := recorded(t, "vllm-0.32.0/d-get-metrics.http").whole()
	for f, want := range map[figure]float64{computed: 0, pulled: 1227, hit: 0, queried: 2045, asked: 2045, preemptions: 0,
		transfers: 6, transferBytes: 1376256, transferSeconds: 0.521702, transferFailed: 6, running: 0, usage: 0} {
		if d[f] != want {
			t.Errorf("figure %d of decode is %v, want %v", f, d[f], want)
		}
	}
	plain := recorded(t, "vllm-0.32.0/plain-get-metrics.http").whole()
	if !math.IsNaN(plain[transfers]) || math.IsNaN(plain[computed]) {
		t.Errorf("an engine without NIXL has transfers %v, computed %v", plain[transfers], plain[computed])
	}
	var zero values
	const want = "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 2.6 tokens/s, Running: 0 reqs, Waiting: 0 reqs, " +
		"GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%, External prefix cache hit rate: 60.0%"
	if got := line(0, d, zero, zero, 10*time.Second); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	old := recorded(t, "vllm-0.28.0/p-get-metrics.http").whole()
	if math.IsNaN(old[generated]) || math.IsNaN(old[hit]) || math.IsNaN(old[computed]) {
		t.Errorf("of 0.28 is not known: %v", old)
	}
}

// TestRanks: a data-parallel engine has a line for each rank, and its figures are their sum.
func TestRanks(t *testing.T) {
	p, err := readPage(strings.NewReader(`# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="10"} 1
vllm:generation_tokens_total{engine="2"} 2
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="10"} 0.5
vllm:kv_cache_usage_perc{engine="2"} 0.25
`))
	if err != nil || fmt.Sprint(p.names()) != "[2 10]" || p.whole()[generated] != 3 || p.whole()[usage] != 0.5 || !math.IsNaN(p.started) {
		t.Errorf("%+v %v", p, err)
	}
	got := line(10, p.ranks["10"], p.ranks["10"], p.ranks["10"], time.Second)
	const want = "Engine 010: Avg prompt throughput: unknown, Avg generation throughput: 0.0 tokens/s, Running: unknown, Waiting: unknown, GPU KV cache usage: 50.0%, Prefix cache hit rate: unknown"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := readPage(strings.NewReader("go_goroutines 3\n")); err == nil {
		t.Error("a page without vLLM's metrics is an engine's")
	}
}

// lines collects what is said.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, text)
}

func engine(t *testing.T, o sim.Options) *sim.Engine {
	t.Helper()
	e, err := sim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a killed engine has nothing to close
	return e
}

// complete sends a completion and returns its handle.
func complete(t *testing.T, url string, prompt string, tokens int, kv any) any {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "sim", "prompt": prompt, "max_tokens": tokens, "ignore_eos": true, "kv_transfer_params": kv})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var out struct {
		KV any `json:"kv_transfer_params"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return out.KV
}

// counted is how many tokens an engine says that it generated.
func counted(t *testing.T, url string) float64 {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	p, err := readPage(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return p.whole()[generated]
}

// TestWhatARunDidToItsEngines: counters count from the beginning of the run, and each engine has its
// own work.
func TestWhatARunDidToItsEngines(t *testing.T) {
	p, d := engine(t, sim.Options{Role: sim.RolePrefill}.Fast()), engine(t, sim.Options{Role: sim.RoleDecode}.Fast())
	twoLegs := func(prompt string) {
		complete(t, d.URL(), prompt, 5, complete(t, p.URL(), prompt, 1, map[string]any{"do_remote_decode": true, "do_remote_prefill": false}))
	}
	twoLegs(strings.Repeat("before the run ", 40))
	for counted(t, d.URL()) < 5 { // an engine counts an answer after it has given it
		time.Sleep(time.Millisecond)
	}
	var said lines
	w := Watch(t.Context(), []Spec{{Name: "P", Role: Prefill, URL: p.URL(), GPUs: 4}, {Name: "D", Role: Decode, URL: d.URL()}}, time.Hour, false, said.say)
	twoLegs(strings.Repeat("within the run, ", 40))
	twoLegs(strings.Repeat("within the run! ", 40))
	all := w.Stop(t.Context())
	prefill, decode := all[0], all[1]
	if prefill.Problem != "" || prefill.Version != "0.32.0" || prefill.GPUs != 4 || *prefill.Computed == 0 || *prefill.Pulled != 0 || *prefill.Transfers != 0 {
		t.Errorf("prefill %+v", prefill)
	}
	if *decode.Pulled == 0 || *decode.Computed != 0 || *decode.Generated != 10 || *decode.Transfers != 2 || *decode.TransferFailed != 0 {
		t.Errorf("decode %+v", decode)
	}
	if ms, ok := decode.TransferMS(); !ok || ms <= 0 {
		t.Errorf("a transfer takes %v ms", ms)
	}
	if speed, ok := decode.TransferGBps(); !ok || speed <= 0 {
		t.Errorf("a transfer has %v GB/s", speed)
	}
	if _, ok := prefill.TransferMS(); ok {
		t.Error("no transfer has a mean time")
	}
	for _, e := range []result.Engine{prefill, decode} { // P's size by D's transfers
		if e.KVBlocks == nil || *e.KVBlocks != 8192 || *e.KVBlockTokens != 16 || e.KVBytes == nil || *e.KVBytes < 8192*32768 || *e.KVBytes > 1.2*8192*32768 {
			t.Errorf("%s: cache of %v blocks, %v bytes", e.Name, e.KVBlocks, e.KVBytes)
		}
	}
	if decode.Preemptions == nil || *decode.Preemptions != 0 {
		t.Errorf("preemptions %v, want 0", decode.Preemptions)
	}
	if all := strings.Join(said.all, "\n"); !strings.Contains(all, ", KV blocks: 0 of 8192, about 0.00 GiB") {
		t.Error(all)
	}
	if len(said.all) != 2 || !strings.Contains(strings.Join(said.all, "\n"), "D Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: ") {
		t.Error(said.all)
	}
	if _, err := json.Marshal(all); err != nil {
		t.Error(err)
	}
}

// TestEnginesThatCannotBeCounted: they have no figures, and a reason.
func TestEnginesThatCannotBeCounted(t *testing.T) {
	started, dies := engine(t, sim.Options{}.Fast()), engine(t, sim.Options{}.Fast())
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }))
	defer other.Close()
	complete(t, started.URL(), "hello", 3, nil)
	var said lines
	w := Watch(t.Context(), []Spec{{Name: "again", URL: started.URL()}, {Name: "dies", URL: dies.URL()}, {Name: "other", URL: other.URL}, {Name: "gone", URL: "http://127.0.0.1:1"}}, 20*time.Millisecond, false, said.say)
	dies.Kill()
	started.Kill()
	if err := started.Restart(); err != nil {
		t.Fatal(err)
	}
	all := w.Stop(t.Context())
	none := func(r result.Engine) bool { return r.Computed == nil && r.Generated == nil && r.Transfers == nil }
	if !all[0].Restarted || !none(all[0]) {
		t.Errorf("restarted: %+v", all[0])
	}
	for i, want := range map[int]string{1: "not read when the run ended: ask for /metrics: ", 2: "not read when the run began: its metrics have none of vLLM's", 3: "not read when the run began: ask for /metrics: "} {
		if !strings.HasPrefix(all[i].Problem, want) || !none(all[i]) {
			t.Errorf("%d: %+v, want %s", i, all[i], want)
		}
	}
	for _, text := range said.all {
		if strings.HasPrefix(text, "gone Engine") || strings.HasPrefix(text, "other Engine") {
			t.Error(text)
		}
	}
}

// TestShortRunsHavePeaks: a run that is far shorter than the pace of lines.
func TestShortRunsHavePeaks(t *testing.T) {
	e := engine(t, sim.Options{TokenLatency: 5 * time.Millisecond})
	for tokens := 100; ; tokens *= 2 {
		w := Watch(t.Context(), []Spec{{Name: "e", URL: e.URL()}}, Pace, false, func(string) {})
		complete(t, e.URL(), strings.Repeat("short ", 100), tokens, nil)
		if got := w.Stop(t.Context())[0]; got.PeakRunning != nil && *got.PeakRunning == 1 && *got.PeakUsage > 0 {
			return
		} else if tokens > 1000 {
			t.Fatalf("in %d tokens: %+v", tokens, got)
		}
	}
}

// TestPeaksAreOfTheRun: peaks are the gauges of readings during a request, not of the reading after it.
// A machine that stalls may read nothing during a short request, so the request gets longer until it does.
func TestPeaksAreOfTheRun(t *testing.T) {
	e := engine(t, sim.Options{TokenLatency: 5 * time.Millisecond})
	for tokens := 60; ; tokens *= 2 {
		w := Watch(t.Context(), []Spec{{Name: "e", URL: e.URL()}}, 20*time.Millisecond, false, func(string) {})
		complete(t, e.URL(), strings.Repeat("long ", 100), tokens, nil)
		got := w.Stop(t.Context())[0]
		if got.PeakRunning != nil && *got.PeakRunning == 1 && *got.PeakUsage > 0 {
			return
		}
		if tokens > 3000 {
			t.Fatalf("in %d tokens: %+v", tokens, got)
		}
	}
}
