package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xpyd/bench/advice"
	"xpyd/bench/result"
)

var update = flag.Bool("update", false, "rewrite what the formats that are xpyd's own have in testdata")

// saved is one of the runs in testdata, which were measured on simulated engines.
func saved(t *testing.T, name string) *result.Run {
	t.Helper()
	r, err := result.Load(filepath.Join("testdata", name+result.Suffix))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func printed(t *testing.T, format string, runs ...*result.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := Print(&b, format, runs); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// sweep are the runs of a sweep in testdata: three targets at two concurrencies, each twice.
func sweep(t *testing.T) []*result.Run {
	t.Helper()
	runs, err := result.LoadDir(filepath.Join("testdata", "sweep"))
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// filesOf are a format's files by name.
func filesOf(t *testing.T, format string, runs []*result.Run) map[string]string {
	t.Helper()
	files, err := Files(format, runs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		if _, twice := all[f.Name]; twice {
			t.Errorf("%s has two files %s", format, f.Name)
		}
		all[f.Name] = string(f.Data)
	}
	return all
}

// TestBlocksAreVLLMs: the blocks in testdata were printed from the saved runs by Python's
// str.format with vLLM's format strings, and its percentiles.
func TestBlocksAreVLLMs(t *testing.T) {
	for _, name := range []string{"rate", "cap"} {
		for _, format := range []string{"vllm", "seed"} {
			want, err := os.ReadFile(filepath.Join("testdata", name+"."+format+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			if got := printed(t, format, saved(t, name)); got != string(want) {
				t.Errorf("%s as %s:\n%s\nwant\n%s", name, format, got, want)
			}
		}
	}
}

// TestResultFileIsVLLMs: keys, their order, and the types of values.
func TestResultFileIsVLLMs(t *testing.T) {
	for name, want := range map[string]string{
		"rate": "date:s endpoint_type:s backend:s label:0 model_id:s tokenizer_id:0 num_prompts:i request_rate:f burstiness:f max_concurrency:0 duration:f " +
			"completed:i failed:i total_input_tokens:i total_output_tokens:i request_throughput:f request_goodput:f output_throughput:f total_token_throughput:f " +
			"latencies:[f queue_times:[f max_output_tokens_per_s:f max_concurrent_requests:i rtfx:f " +
			"mean_ttft_ms:f median_ttft_ms:f std_ttft_ms:f p50_ttft_ms:f p99_ttft_ms:f p99.9_ttft_ms:f " +
			"mean_tpot_ms:f median_tpot_ms:f std_tpot_ms:f p50_tpot_ms:f p99_tpot_ms:f p99.9_tpot_ms:f " +
			"mean_itl_ms:f median_itl_ms:f std_itl_ms:f p50_itl_ms:f p99_itl_ms:f p99.9_itl_ms:f " +
			"mean_e2el_ms:f median_e2el_ms:f std_e2el_ms:f p50_e2el_ms:f p99_e2el_ms:f p99.9_e2el_ms:f",
		"cap": "date:s endpoint_type:s backend:s label:s model_id:s tokenizer_id:0 num_prompts:i request_rate:f burstiness:f max_concurrency:i duration:f " +
			"completed:i failed:i total_input_tokens:i total_output_tokens:i request_throughput:f request_goodput:0 output_throughput:f total_token_throughput:f " +
			"latencies:[f queue_times:[f max_output_tokens_per_s:f max_concurrent_requests:i rtfx:f " +
			"mean_ttft_ms:f median_ttft_ms:f std_ttft_ms:f p99_ttft_ms:f mean_tpot_ms:f median_tpot_ms:f std_tpot_ms:f p99_tpot_ms:f " +
			"mean_itl_ms:f median_itl_ms:f std_itl_ms:f p99_itl_ms:f mean_e2el_ms:f median_e2el_ms:f std_e2el_ms:f p99_e2el_ms:f " +
			"mean_client_queue_time_ms:f median_client_queue_time_ms:f std_client_queue_time_ms:f p99_client_queue_time_ms:f " +
			"mean_e2el_including_client_queue_ms:f median_e2el_including_client_queue_ms:f std_e2el_including_client_queue_ms:f p99_e2el_including_client_queue_ms:f",
	} {
		if got := shape(t, printed(t, "vllm-json", saved(t, name))); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	r := saved(t, "rate")
	r.Config.Rate, r.Config.Burstiness = nil, nil
	if got := printed(t, "vllm-json", r); !strings.Contains(got, `"request_rate": "inf", "burstiness": 1e999,`) {
		t.Errorf("no rate, constant gaps: %.400s", got)
	}
}

// TestDetailedResultFileIsVLLMs: --save-detailed adds vLLM's lists at vLLM's places. A request that
// failed has its error, no latency, and no output.
func TestDetailedResultFileIsVLLMs(t *testing.T) {
	r := failed(t)
	r.Records[59].Text = "a text"
	var b strings.Builder
	if err := PrintAs(&b, "vllm-json", []*result.Run{r}, Options{Detailed: true}); err != nil {
		t.Fatal(err)
	}
	const want = "total_token_throughput:f input_lens:[i output_lens:[i ttfts:[f itls:[[f latencies:[f start_times:[f queue_times:[f " +
		"generated_texts:[s errors:[s max_output_tokens_per_s:f"
	if got := shape(t, b.String()); !strings.Contains(got, want) {
		t.Errorf("%s\nlacks\n%s", got, want)
	}
	var lists struct {
		Outputs   []int     `json:"output_lens"`
		Latencies []float64 `json:"latencies"`
		Texts     []string  `json:"generated_texts"`
		Errors    []string  `json:"errors"`
	}
	if err := json.Unmarshal([]byte(b.String()), &lists); err != nil || lists.Texts[59] != "a text" {
		t.Fatal(err, lists.Texts)
	}
	bad := 0
	for i := range r.Records {
		rec := &r.Records[i]
		if !rec.OK() {
			bad++
			if !strings.HasPrefix(lists.Errors[i], rec.Failure) || !strings.HasSuffix(lists.Errors[i], rec.Error) || lists.Latencies[i] != 0 || lists.Outputs[i] != 0 {
				t.Errorf("request %d: %q, %v s, %d tokens", i, lists.Errors[i], lists.Latencies[i], lists.Outputs[i])
			}
		} else if lists.Errors[i] != "" || lists.Latencies[i] == 0 || lists.Outputs[i] != rec.Output {
			t.Errorf("request %d: %q, %v s, %d tokens", i, lists.Errors[i], lists.Latencies[i], lists.Outputs[i])
		}
	}
	if bad == 0 {
		t.Error("no request of the fixture failed")
	}
}

// shape is an object's keys with the types that Python's reader gives their values: s, i, f, 0
// for null, and a [ for each list around the first element.
func shape(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var words []string
	kind := func(token json.Token) string {
		switch v := token.(type) {
		case string:
			return "s"
		case json.Number:
			if strings.ContainsAny(v.String(), ".e") {
				return "f"
			}
			return "i"
		}
		return "0"
	}
	next := func() json.Token {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for next(); d.More(); {
		key := next().(string)
		value := next()
		if value != json.Delim('[') {
			words = append(words, key+":"+kind(value))
			continue
		}
		word := key + ":["
		for deep := 1; deep > 0; {
			switch token := next(); {
			case token == json.Delim('['):
				deep++
				if strings.HasSuffix(word, "[") {
					word += "["
				}
			case token == json.Delim(']'):
				deep--
			case strings.HasSuffix(word, "["):
				word += kind(token)
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestOwnFormats checks the formats with a layout of xpyd's own or of a published table.
func TestOwnFormats(t *testing.T) {
	both := []*result.Run{saved(t, "rate"), saved(t, "cap")}
	for name, runs := range map[string][]*result.Run{"both.csv": both, "both.table": both, "both.mooncake": both, "sweep.mooncake": sweep(t), "sweep.table": sweep(t), "sweep.ray": sweep(t)} {
		_, format, _ := strings.Cut(name, ".")
		path := filepath.Join("testdata", name+".txt")
		got := strings.TrimSuffix(printed(t, format, runs...), advised(runs)) // the advice has tests of its own
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// advised is what format ray says below the fronts.
func advised(runs []*result.Run) string {
	return strings.Join(advice.Words(runs, advice.Token()), "\n") + "\n"
}

// TestRaySaysWhichTargetIsBest: it uses the words of the advice.
func TestRaySaysWhichTargetIsBest(t *testing.T) {
	if got := printed(t, "ray", sweep(t)...); !strings.HasSuffix(got, "\n\n"+advised(sweep(t))) {
		t.Errorf("%s, want at its end\n%s", got, advised(sweep(t)))
	}
}

// failed is a run in which everything went wrong.
func failed(t *testing.T) *result.Run {
	r := saved(t, "rate")
	for i := range r.Records[:10] {
		r.Records[i].Failure, r.Records[i].Error = "http_429", "429 Too Many Requests: queue\nfull"
	}
	r.Records[10].Failure, r.Records[10].Error = "no_usage", "no usage"
	r.Records[11].Failure = result.Interrupted
	r.Interrupted, r.Unsent, r.Prompts.LengthBy, r.Prompts.Reused = true, 40, "bytes", 3
	r.Sum()
	return r
}

// TestFailuresStayInView: each format that people read shows them.
func TestFailuresStayInView(t *testing.T) {
	r := failed(t)
	for format, want := range map[string]string{
		"vllm": "Failed requests:                         11        \n", "seed": "Failed requests:                         11        \n",
		"mooncake": "| 48 (11 failed) ", "csv": ",48,11,http_429=10 no_usage=1,", "vllm-json": `"completed": 48, "failed": 11,`, "table": "  48      11  ",
	} {
		if got := printed(t, format, r); !strings.Contains(got, want) {
			t.Errorf("%s lacks %q:\n%s", format, want, got)
		}
	}
	notes := Notes(r)
	for _, want := range []string{
		"failed with http_429: 10, as in: 429 Too Many Requests: queue full", "failed with no_usage: 1, as in: no usage",
		"interrupted: 1 requests were broken off, and 40 never sent", "the server does not count tokens at /tokenize: prompts have 4 bytes for each token asked for",
		"3 requests repeat an earlier prompt, which a prefix cache finds",
	} {
		if !slices.Contains(notes, want) {
			t.Errorf("the notes lack %q: %q", want, notes)
		}
	}
	if notes := Notes(saved(t, "rate")); len(notes) != 1 || !strings.HasPrefix(notes[0], "the tool's own lateness (ms): median ") {
		t.Errorf("notes of a run without trouble: %q", notes)
	}
}

// TestCountsThatDoNotAgreeAreTold: the notes mention more events than tokens, and prompts that the
// server counts differently from its own tokenizer.
func TestCountsThatDoNotAgreeAreTold(t *testing.T) {
	r := saved(t, "rate")
	r.Config.API = "completions"
	asked := r.Totals.InputTokens
	for i := range r.Records {
		r.Records[i].Asked = r.Records[i].Prompt
		r.Records[i].Prompt *= 2
		r.Records[i].Output = 1
	}
	r.Sum()
	notes := Notes(r)
	for _, want := range []string{
		fmt.Sprintf("the server sent %d events for %d tokens: some carry none, and TTFT or E2EL may end with such an event", r.Totals.Events, r.Totals.Completed),
		fmt.Sprintf("the server counted %d input tokens, by its own /tokenize it was sent %d", 2*asked, asked),
	} {
		if !slices.Contains(notes, want) {
			t.Errorf("the notes lack %q: %q", want, notes)
		}
	}
}

func TestPreface(t *testing.T) {
	for name, want := range map[string]string{
		"rate": "Traffic request rate: 20.0\nBurstiness factor: 1.0 (Poisson process)\nMaximum request concurrency: None\n",
		"cap":  "Traffic request rate: 30.0\nBurstiness factor: 1.0 (Poisson process)\nMaximum request concurrency: 8\n",
	} {
		if got := Preface(saved(t, name).Config); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestCSVIsSquare(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(printed(t, "csv", saved(t, "rate"), failed(t)))).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Error(len(rows), err)
	}
}

func TestPyFloat(t *testing.T) {
	for x, want := range map[float64]string{2: "2.0", 0.5: "0.5", 0: "0.0", 1e-5: "1e-05", 0.0001: "0.0001", 1e16: "1e+16", 123456789.25: "123456789.25", -3: "-3.0"} {
		if got := pyFloat(x).String(); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	if err := Print(&bytes.Buffer{}, "pdf", nil); err == nil || !strings.Contains(err.Error(), "mooncake") {
		t.Error(err)
	}
}

// TestBlocksOfSeveralRunsSayWhichIsWhich: each has its target, its load and its repeat. A concurrency that was never reached is marked
// everywhere.
func TestBlocksOfSeveralRunsSayWhichIsWhich(t *testing.T) {
	a, b, c := saved(t, "cap"), saved(t, "cap"), saved(t, "cap")
	c.Config.Rate, c.Config.Burstiness, c.Config.Concurrency = nil, nil, 64
	for _, format := range []string{"vllm", "seed"} {
		got := printed(t, format, a, b, c)
		for _, want := range []string{"random 256/24, chat8, 30 req/s, at most 8 open, repeat 1\n", "at most 8 open, repeat 2\n", "chat8, concurrency 64 (never reached: at most 8 open), repeat 1\n"} {
			if strings.Count(got, want) != 1 {
				t.Errorf("%s: no %q in\n%.3000s", format, want, got)
			}
		}
	}
	for format, want := range map[string]string{"table": "64!", "mooncake": "(concurrency never reached)", "ray": "left out: chat8 at concurrency 64, which was never reached"} {
		if got := printed(t, format, c); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", format, want, got)
		}
	}
	if notes := strings.Join(Notes(c), "\n"); !strings.Contains(notes, "concurrency 64 was never reached: no more than 8 requests were open at once") {
		t.Errorf("the notes are\n%s", notes)
	}
}
