// Package report prints saved runs, with one printer for each format.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"xpyd/bench/advice"
	"xpyd/bench/plot"
	"xpyd/bench/result"
)

// Options are what a reader may choose in a format.
type Options struct {
	Ray      plot.Pareto // the third panel of the figure of format ray
	Detailed bool        // vllm-json has the lists of --save-detailed; a run that was read from a file has no texts for them
}

// File is one file of a report. Its name never leads out of the report's folder.
type File struct {
	Name string
	Data []byte
}

// format is one printer. Its text goes to standard output. files makes the files of a saved report;
// if it is nil, the report is the text under the name file.
type format struct {
	name  string
	wants bool // single requests, which only saved runs of xpyd have
	about string
	print func(w *strings.Builder, runs []*result.Run, o Options) error
	file  string
	files func(runs []*result.Run, o Options) ([]File, error)
}

func formats() []format {
	return []format{
		{"vllm", false, "the block of vllm bench serve", eachRun(vllmBlock), "vllm.txt", nil},
		{"seed", false, "the block of vllm's benchmark_serving.py of 2024 and 2025", eachRun(seedBlock), "seed.txt", nil},
		{"vllm-json", true, "the result file of vllm bench serve, an object a line", vllmJSONs, "", vllmFiles},
		{"llm-d-0.1", true, "llm-d's benchmark report v0.1, a YAML document for each run", llmdPrinter(llmd01), "", llmdFiles("benchmark_report,", llmd01)},
		{"llm-d-0.2", true, "llm-d's benchmark report v0.2, a YAML document for each run", llmdPrinter(llmd02), "", llmdFiles("benchmark_report_v0.2,", llmd02)},
		{"inference-perf", true, "summary_lifecycle_metrics.json; with --out also a file for each stage and three plots", inferencePerf, "", inferencePerfFiles},
		{"mooncake", false, "the Markdown table of 17 columns, or 18 with the load, and each run's block", mooncake, "", mooncakeFiles},
		{"ray", false, "the Pareto front and the best target by load, in words; with --out the figure of three panels", ray, "", rayFiles},
		{"csv", false, "a line for each run, with every figure", whole(csvTable), "runs.csv", nil},
		{"table", false, "a line for each run, easy to read", whole(plainTable), "table.txt", nil},
		{"loads", false, "the targets side by side: for each figure a table with a line for each concurrency or rate", whole(loadTables), "loads.txt", nil},
		{"html", true, "one page with everything, to mail", htmlPage, "report.html", nil},
	}
}

// Formats lists the names of formats.
func Formats() (names []string) {
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return names
}

// About describes a format in one line.
func About(name string) string {
	for _, f := range formats() {
		if f.name == name {
			return f.about
		}
	}
	return ""
}

func find(name string) (format, error) {
	all := formats()
	i := slices.IndexFunc(all, func(f format) bool { return f.name == name })
	if i < 0 {
		return format{}, fmt.Errorf("format %q: want one of %s", name, strings.Join(Formats(), ", "))
	}
	return all[i], nil
}

// Print writes runs in a format.
func Print(out io.Writer, name string, runs []*result.Run) error {
	return PrintAs(out, name, runs, Options{})
}

// PrintAs writes runs in a format with the reader's options.
func PrintAs(out io.Writer, name string, runs []*result.Run, o Options) error {
	f, err := find(name)
	if err != nil {
		return err
	}
	if err := f.takes(runs); err != nil {
		return err
	}
	var b strings.Builder
	if err := f.print(&b, runs, o); err != nil {
		return fmt.Errorf("print %s: %w", name, err)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("print %s: %w", name, err)
	}
	return nil
}

// Files makes the files of a report in a format.
func Files(name string, runs []*result.Run, o Options) ([]File, error) {
	f, err := find(name)
	if err != nil {
		return nil, err
	}
	if err := f.takes(runs); err != nil {
		return nil, err
	}
	if f.files == nil {
		var b strings.Builder
		if err := f.print(&b, runs, o); err != nil {
			return nil, fmt.Errorf("print %s: %w", name, err)
		}
		return []File{{f.file, []byte(b.String())}}, nil
	}
	files, err := f.files(runs, o)
	if err != nil {
		return nil, fmt.Errorf("make the files of %s: %w", name, err)
	}
	return unique(files), nil
}

// takes refuses runs that have not all that the format shows.
func (f format) takes(runs []*result.Run) error {
	if !f.wants {
		return nil
	}
	for _, r := range runs {
		if r.Foreign() {
			return fmt.Errorf("format %s shows single requests, which the result %s of %s does not have; want vllm, seed, mooncake, ray, csv, table or loads", f.name, r.Config.Label, r.Tool)
		}
	}
	return nil
}

// whole makes a printer that ignores the options.
func whole(print func(*strings.Builder, []*result.Run) error) func(*strings.Builder, []*result.Run, Options) error {
	return func(w *strings.Builder, runs []*result.Run, _ Options) error { return print(w, runs) }
}

func eachRun(print func(*strings.Builder, *result.Run) error) func(*strings.Builder, []*result.Run, Options) error {
	return whole(func(w *strings.Builder, runs []*result.Run) error {
		seen := map[string]int{}
		for _, r := range runs {
			if len(runs) > 1 {
				w.WriteString(heading(r, seen) + "\n")
			}
			if err := print(w, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// heading says which of several runs a block is of. seen counts the runs of each target under each load.
func heading(r *result.Run, seen map[string]int) string {
	p := advice.Place(r)
	text := strings.TrimSpace(p.Sweep+" "+p.Workload) + ", " + p.Target + ", " + advice.Load(r.Config)
	if r.Unreached() {
		text += fmt.Sprintf(" (never reached: at most %d open)", r.Totals.Open())
	}
	seen[text]++
	repeat := seen[text]
	if r.Config.Cell != nil {
		repeat = p.Repeat
	}
	return fmt.Sprintf("%s, repeat %d", text, repeat)
}

// unique makes names unique: a name that is taken gets a number.
func unique(files []File) []File {
	seen := map[string]int{}
	for i := range files {
		name := files[i].Name
		if seen[name]++; seen[name] > 1 {
			dot := strings.LastIndexByte(name, '.')
			files[i].Name = fmt.Sprintf("%s-%d%s", name[:dot], seen[name], name[dot:])
		}
	}
	return files
}
