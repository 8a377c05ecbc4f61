package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"xpyd/bench/advice"
	"xpyd/bench/plot"
	"xpyd/bench/result"
)

// page is the content of the page.
type page struct {
	Title     string
	Words     []string
	Workloads []pageWorkload
	Runs      []pageRun
}

type pageWorkload struct {
	Title   string
	Head    []string
	Rows    [][]pageCell
	Figures []string // SVG
	Notes   []string // what the points of the figures show
}

// pageCell is the median of a cell's repeats, and their range where they differ.
type pageCell struct {
	Text, Range string
	Bad         bool
}

type pageRun struct {
	Title    string
	Verdict  string // why the figures must not be trusted; "" if they may be
	Block    string
	Config   [][2]string
	Failures [][3]string // code, how many, an example
	Notes    []string
}

// htmlPage is one page that loads nothing else.
func htmlPage(w *strings.Builder, runs []*result.Run, o Options) error {
	p := page{Title: "Benchmark of " + runs[0].Config.Model}
	if len(runs) > 1 {
		lats := []advice.Latency{o.Ray.Latency()}
		if first := advice.FirstToken(); lats[0].Name != first.Name {
			lats = append(lats, first)
		}
		p.Words = advice.Words(runs, lats...)
	}
	for _, load := range workloads(runs) {
		p.Workloads = append(p.Workloads, newPageWorkload(load))
	}
	if err := p.draw(runs, o); err != nil {
		return err
	}
	for _, r := range runs {
		one, err := newPageRun(r)
		if err != nil {
			return err
		}
		p.Runs = append(p.Runs, one)
	}
	if err := p.html().Render(w); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func newPageWorkload(l workload) pageWorkload {
	p := pageWorkload{Title: l.title(), Head: []string{l.loadName(), "Target", "Runs", "Succeeded", "Failed", "req/s", "Output tok/s", "tok/s a GPU",
		"TTFT median", "P99", "TPOT median", "P99", "ITL P99", "E2EL median", "P99"}}
	for _, c := range l.cells {
		p.Rows = append(p.Rows, pageRow(c))
	}
	if !slices.ContainsFunc(l.cells, func(c cell) bool { return advice.Place(c.runs[0]).GPUs > 0 }) { // a column of nothing
		p.Head = slices.Delete(p.Head, gpuColumn, gpuColumn+1)
		for i, row := range p.Rows {
			p.Rows[i] = slices.Delete(row, gpuColumn, gpuColumn+1)
		}
	}
	return p
}

// gpuColumn is the column of throughput per GPU.
const gpuColumn = 7

func pageRow(c cell) []pageCell {
	stat := func(metric string, of func(result.Stat) float64) pageCell {
		return c.page(func(r *result.Run) float64 { return of(r.Totals.MS[metric]) }, 2)
	}
	median := func(s result.Stat) float64 { return s.Median }
	p99 := func(s result.Stat) float64 { return s.P99 }
	first := c.runs[0]
	failed := pageCell{Text: strconv.Itoa(c.failed()), Bad: c.failed() > 0}
	gpu := pageCell{Text: "–"}
	if gpus := advice.Place(first).GPUs; gpus > 0 {
		gpu = c.page(func(r *result.Run) float64 { return r.Totals.OutputRate / gpus }, 1)
	}
	runs := pageCell{Text: strconv.Itoa(len(c.runs))}
	if slices.ContainsFunc(c.runs, func(r *result.Run) bool { return r.Verdict() != nil }) {
		runs.Text, runs.Bad = runs.Text+" !", true
	}
	return []pageCell{{Text: loadValue(first.Config)}, {Text: c.target}, runs,
		c.page(func(r *result.Run) float64 { return float64(r.Totals.Completed) }, 0), failed,
		c.page(func(r *result.Run) float64 { return r.Totals.RequestRate }, 2), c.page(func(r *result.Run) float64 { return r.Totals.OutputRate }, 1), gpu,
		stat(result.TTFT, median), stat(result.TTFT, p99), stat(result.TPOT, median), stat(result.TPOT, p99), stat(result.ITL, p99),
		stat(result.E2EL, median), stat(result.E2EL, p99)}
}

// page is a figure of a cell with that many decimals.
func (c cell) page(of func(*result.Run) float64, decimals int) pageCell {
	v := c.values(of)
	text := func(x float64) string { return strconv.FormatFloat(x, 'f', shown(x, decimals), 64) }
	p := pageCell{Text: text(v.Median())}
	if low, high := text(v.Min()), text(v.Max()); low != high {
		p.Range = low + "–" + high
	}
	return p
}

// shown is how many decimals a figure has: a long one needs fewer, and all columns have to fit.
func shown(x float64, decimals int) int {
	switch {
	case x >= 1000:
		return 0
	case x >= 100:
		return min(decimals, 1)
	}
	return decimals
}

// draw adds the figures: those of a sweep to its workloads, and for a workload of one run the spread
// of its latencies.
func (p *page) draw(runs []*result.Run, o Options) error {
	for i, load := range workloads(runs) {
		if all := load.runs(); len(all) == 1 {
			if err := p.Workloads[i].add(plot.Distribution(all[0])); err != nil {
				return err
			}
			continue
		}
		for _, g := range advice.Groups(load.runs(), o.Ray.Latency()) {
			if len(g.Points) < 2 {
				continue
			}
			for _, figure := range append([]plot.Figure{plot.Ray(g, o.Ray)}, plot.InferencePerf(g)...) {
				if err := p.Workloads[i].add(figure); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add draws each panel on its own, because a phone cannot show two side by side.
func (w *pageWorkload) add(f plot.Figure) error {
	if !slices.ContainsFunc(w.Notes, func(note string) bool { return strings.HasPrefix(note, f.Note) }) {
		w.Notes = append(w.Notes, f.Note)
	}
	for _, one := range f.Split() {
		svg, err := one.SVG()
		if err != nil {
			return err
		}
		_, body, _ := bytes.Cut(svg, []byte("<svg")) // without the head of a file
		w.Figures = append(w.Figures, "<svg"+string(body))
	}
	return nil
}

func newPageRun(r *result.Run) (pageRun, error) {
	var block strings.Builder
	block.WriteString(Preface(r.Config))
	if err := vllmBlock(&block, r); err != nil {
		return pageRun{}, err
	}
	place := advice.Place(r)
	title := fmt.Sprintf("%s, %s, %s", place.Target, place.Workload, advice.Load(r.Config))
	if r.Config.Cell != nil {
		title += fmt.Sprintf(", repeat %d", place.Repeat)
	}
	p := pageRun{Title: title + r.Started.UTC().Format(", 2006-01-02 15:04:05 UTC"), Block: block.String(), Notes: Notes(r)}
	if err := r.Verdict(); err != nil {
		p.Verdict = err.Error()
	}
	for _, code := range byCount(r.Totals.Failures) {
		p.Failures = append(p.Failures, [3]string{code, strconv.Itoa(r.Totals.Failures[code]), example(r, code)})
	}
	config, err := plain(r.Config)
	if err != nil {
		return pageRun{}, err
	}
	p.Config = append(p.Config, [2]string{"tool", r.Tool}, [2]string{"prompt lengths by", r.Prompts.LengthBy})
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if text, ok := config[key].(string); ok {
			p.Config = append(p.Config, [2]string{key, text})
			continue
		}
		value, _ := json.Marshal(config[key]) // cannot fail: config came from JSON
		p.Config = append(p.Config, [2]string{key, string(value)})
	}
	return p, nil
}

// runs are all runs of the workload.
func (l workload) runs() (all []*result.Run) {
	for _, c := range l.cells {
		all = append(all, c.runs...)
	}
	return all
}
