package versus

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/tools/report"
)

// straight is a run of clients that go to the engines themselves.
func straight(t *testing.T, rounds int) *run {
	t.Helper()
	o := Options{Only: []string{nameDirect}, Run: "^(paced-64|prompt-1k)$", Rounds: rounds, Window: 100 * time.Millisecond, Cores: 1, Load: loadGoroutines, Out: t.TempDir(), Version: "v1"}
	cpus, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = confine(cpus) })
	return &run{o: o, out: &bytes.Buffer{}, contenders: []contender{direct()}, results: newResults(o), cpus: cpus}
}

// A run that is stopped leaves the rounds that it has finished, of every shape.
func TestStoppedRunKeepsItsRounds(t *testing.T) {
	r := straight(t, 5)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r.out = writerFunc(func(text string) {
		if strings.Contains(text, "prompt-1k: round 2 ") {
			stop()
		}
	})
	if err := r.rounds(ctx, r.work()); err == nil {
		t.Fatal("the run did not stop")
	}
	var kept Results
	if err := report.Load(filepath.Join(r.o.Out, "results.json"), &kept); err != nil {
		t.Fatal(err)
	}
	for _, s := range kept.Shapes {
		if got := len(report.Present(s.Contenders.Of(nameDirect).Of(othersCPU))); got != 2 {
			t.Errorf("%s has %d rounds, want 2: %v", s.Name, got, s.Contenders.Of(nameDirect).Values)
		}
	}
	if len(kept.Shapes) != 2 {
		t.Errorf("%d shapes, want 2", len(kept.Shapes))
	}
}

// Growth has fewer rounds than the rest, and the page says so.
func TestGrowthHasFewerRounds(t *testing.T) {
	r := straight(t, growthRounds+1)
	if err := r.rounds(t.Context(), r.work()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"paced-64": growthRounds + 1, "prompt-1k": growthRounds} {
		if got := len(r.results.of(name, loadGoroutines).Contenders.Of(nameDirect).Of(othersCPU)); got != want {
			t.Errorf("%s has %d rounds, want %d", name, got, want)
		}
	}
	if text := r.results.Markdown(""); !strings.Contains(text, "; 3 rounds of prompt-1k.") {
		t.Errorf("the page does not say which shapes have 3 rounds:\n%s", text)
	}
}

type writerFunc func(text string)

func (f writerFunc) Write(b []byte) (int, error) { f(string(b)); return len(b), nil }

// All threads of this process, and what it starts, are confined, and set free again.
func TestConfine(t *testing.T) {
	all, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	threads := runtime.GOMAXPROCS(0)
	defer func() {
		if err := confine(all); err != nil {
			t.Error(err)
		}
		runtime.GOMAXPROCS(threads)
	}()
	one := firstOf(all, 1)
	if err := confine(one); err != nil {
		t.Fatal(err)
	}
	tasks, err := filepath.Glob("/proc/self/task/[0-9]*/status")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("%d threads, error %v", len(tasks), err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
		list, _, _ := strings.Cut(rest, "\n")
		if strings.ContainsAny(list, ",-") {
			t.Errorf("%s may run on %s, want one CPU", task, list)
		}
	}
	if got := runtime.GOMAXPROCS(0); got != 1 {
		t.Errorf("GOMAXPROCS %d, want 1", got)
	}
}

func TestFirstOf(t *testing.T) {
	var set unix.CPUSet
	for _, cpu := range []int{2, 3, 5, 7} {
		set.Set(cpu)
	}
	two := firstOf(set, 2)
	if two.Count() != 2 || !two.IsSet(2) || !two.IsSet(3) {
		t.Errorf("the first two of 2, 3, 5, 7 are %v", two)
	}
	if all := firstOf(set, 9); all != set {
		t.Errorf("the first nine of four are %v", all)
	}
}

// Parts of a run that were made side by side are one page; parts of different runs are not.
func TestRenderJoinsParts(t *testing.T) {
	docs := t.TempDir()
	if err := os.WriteFile(filepath.Join(docs, "performance.md"), []byte("<!-- bench-proxy: begin -->\n<!-- bench-proxy: end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	part := func(name, version string) string {
		r := newResults(Options{Rounds: 1, Window: time.Second, Cores: 2, Version: version})
		r.Notes = report.Notes{"a note"}
		r.add(shape{name: name, title: "title of " + name, metrics: []metric{cpuEvent}}, loadEpoll, []contender{{name: nameXpyd, xpyd: true}}).
			record(nameXpyd, map[metric]float64{cpuEvent: 10}, nil)
		path := filepath.Join(t.TempDir(), "results.json")
		text, err := json.Marshal(r)
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := Render([]string{part("paced-500", "v1"), part("flood", "v1")}, docs); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	if a, b := strings.Index(text, "title of flood"), strings.Index(text, "title of paced-500"); a < 0 || b < a || strings.Count(text, "a note") != 1 {
		t.Errorf("parts are not in the order of shapes, or a note is there twice:\n%s", text)
	}
	for _, other := range []string{part("json", "v2"), part("flood", "v1")} {
		if err := Render([]string{part("flood", "v1"), other}, docs); err == nil {
			t.Error("a part of another build, or the same shape twice, is taken")
		}
	}
}

// Streams of a second begin within any window, so that their time to the first event is measured.
func TestShortWindowsMeasureTheTTFTOfLongStreams(t *testing.T) {
	r := straight(t, 1)
	r.o.Run = "^ttft-64$"
	if err := r.rounds(t.Context(), r.work()); err != nil {
		t.Fatal(err)
	}
	if v := r.results.of("ttft-64", loadGoroutines).Contenders.Of(nameDirect).Spread(ttft50); !(v.Median > 0) {
		t.Errorf("TTFT p50 %v, want a time", v.Median)
	}
}
