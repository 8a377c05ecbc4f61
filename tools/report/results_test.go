package report

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// trial is the least that results can be.
type trial struct {
	Run
	Notes Notes `json:"notes"`
	Rows  Rows  `json:"rows"`
}

func (r *trial) Page() Page { return Page{File: "trial.md", Name: "bench-trial"} }

func (r *trial) Markdown(images string) string {
	return r.Intro(1.5) + ".\n" + r.Notes.Markdown() + "\n![trial](" + images + "trial.svg)\n"
}

func (r *trial) Charts() map[string]Chart { return map[string]Chart{"trial.svg": {Title: "trial"}} }

// sample has a round that failed.
func sample() *trial {
	r := &trial{Run: Begin("v1", 2), Notes: Notes{"a note", "another"}, Rows: Rows{NewRow("x"), NewRow("y")}}
	r.Rows.Of("x").Record([]Metric{"ms", "MiB"}, map[Metric]float64{"ms": 3}, nil)
	r.Rows.Of("x").Record([]Metric{"ms", "MiB"}, map[Metric]float64{"ms": 4}, errors.New("it broke"))
	return r
}

func TestPageKeepsWhatIsWritten(t *testing.T) {
	r, docs := sample(), t.TempDir()
	path := filepath.Join(docs, "trial.md")
	for _, part := range []string{"old\n", "old\nand longer\n", ""} {
		if err := os.WriteFile(path, []byte("before\n<!-- bench-trial: begin -->\n"+part+"<!-- bench-trial: end -->\nafter\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(Publish(r, docs), Publish(r, docs)); err != nil { // again and again
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if want := "before\n<!-- bench-trial: begin -->\n\n" + r.Markdown("img/") + "\n<!-- bench-trial: end -->\nafter\n"; err != nil || string(got) != want {
			t.Errorf("error %v; the page became\n%s\nwant\n%s", err, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(docs, "img", "trial.svg")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("no marks\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Publish(r, docs); err == nil || !strings.Contains(err.Error(), "bench-trial: begin") {
		t.Errorf("without marks: error %v", err)
	}
}

// A round that failed stays in the results, as a gap in each figure and as a text.
func TestResultsAreReadAgain(t *testing.T) {
	r, out := sample(), t.TempDir()
	path := filepath.Join(out, "results.json")
	var said bytes.Buffer
	if err := Save(r, out, "", &said); err != nil || !strings.Contains(said.String(), out) {
		t.Fatalf("error %v; said of the place: %q", err, &said)
	}
	js, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"rows":[{"name":"x","values":{"MiB":[null,null],"ms":[3,null]},"errors":["itbroke"]},{"name":"y","values":{}}]`; !strings.Contains(strings.Join(strings.Fields(string(js)), ""), want) {
		t.Errorf("results lack %s: %s", want, js)
	}
	var again trial
	if err := Load(path, &again); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "results.md"))
	if err != nil || string(text) != again.Markdown("") || !strings.Contains(string(text), "medians of 2 rounds of 1.5 s, each with (least–most) of the rounds.\n\n- a note\n- another\n\n![trial]") {
		t.Errorf("error %v; from the file\n%s\nfrom the run\n%s", err, again.Markdown(""), text)
	}
	if s := again.Rows.Of("x").Spread("ms"); s != (Spread{3, 3, 3}) || again.Rows.Of("z").Of("ms") != nil {
		t.Errorf("the gap counts: %v; one that took no part has %v", s, again.Rows.Of("z").Of("ms"))
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Load(path, &again); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("of half a file: error %v", err)
	}
}

func TestNotesAreToldAtOnce(t *testing.T) {
	var n Notes
	if n.Markdown() != "" {
		t.Errorf("of no note: %q", n.Markdown())
	}
	var out bytes.Buffer
	n.Add(&out, "%d of %d", 1, 2)
	if out.String() != "note: 1 of 2\n" || !slices.Equal(n, Notes{"1 of 2"}) {
		t.Errorf("told %q, kept %q", &out, n)
	}
}

func TestVerdicts(t *testing.T) {
	ratio := Goal{Of: "x", What: "ms to y", Limit: 2, Unit: "×"}
	rate := Goal{Of: "x", What: "rate", Limit: 40, AtLeast: true}
	for _, tc := range []struct {
		goal   Goal
		values []float64
		want   string
	}{
		{ratio, []float64{1, 2, 3}, "x: ms to y ≤ 2×: 2.00× (1.00–3.00): holds"},
		{ratio, []float64{1, 2.01, 3}, "x: ms to y ≤ 2×: 2.01× (1.00–3.00): does not hold"},
		{ratio, nil, "x: ms to y ≤ 2×: not measured: unknown"},
		{rate, []float64{40}, "x: rate ≥ 40: 40.0 (40.0–40.0): holds"},
		{rate, []float64{39.9}, "x: rate ≥ 40: 39.9 (39.9–39.9): does not hold"},
		{rate, nil, "x: rate ≥ 40: not measured: unknown"},
	} {
		v := tc.goal.Judge(tc.values, Short)
		if v.String() != tc.want || v.Known != (tc.values != nil) || v.Holds != strings.HasSuffix(tc.want, ": holds") {
			t.Errorf("of %v: %+v, want %s", tc.values, v, tc.want)
		}
	}
}
