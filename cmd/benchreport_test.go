package cmd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	printer "xpyd/bench/report"
	"xpyd/cmd/config"
)

const savedSweep = "../bench/report/testdata/sweep"

// TestBenchReportPrintsOrWrites: it prints the text, or with --out writes files and prints their names.
func TestBenchReportPrintsOrWrites(t *testing.T) {
	t.Parallel()
	for _, format := range printer.Formats() {
		out, note, err := runBenchCmd(t.Context(), "report", savedSweep, "--format", format)
		if err != nil || out == "" || note != "" {
			t.Errorf("%s: %v, notes %q, text %.100s", format, err, note, out)
		}
		dir := filepath.Join(t.TempDir(), "new", "folder")
		out, note, err = runBenchCmd(t.Context(), "report", savedSweep, "--format", format, "--out", dir)
		if err != nil || out != "" {
			t.Errorf("%s --out: %v, text %.100s", format, err, out)
		}
		var saved []string
		for _, line := range strings.Split(strings.TrimSpace(note), "\n") {
			path, ok := strings.CutPrefix(line, "saved ")
			if info, err := os.Stat(path); !ok || err != nil || info.Size() == 0 {
				t.Errorf("%s: %s: %v", format, line, err)
			}
			saved = append(saved, path)
		}
		var found []string
		err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				found = append(found, path)
			}
			return err
		})
		slices.Sort(saved)
		slices.Sort(found)
		if err != nil || !slices.Equal(saved, found) {
			t.Errorf("%s: said %q, wrote %q (%v)", format, saved, found, err)
		}
	}
}

// TestBenchReportChoices: they reach the printer.
func TestBenchReportChoices(t *testing.T) {
	t.Parallel()
	out, _, err := runBenchCmd(t.Context(), "report", savedSweep, "--format", "ray", "--latency-mode", "chunk")
	if err != nil || !strings.Contains(out, "by median TTFT + 15 TPOT and throughput:") {
		t.Errorf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	if _, _, err := runBenchCmd(t.Context(), "report", savedSweep, "--format", "ray", "--use-interactivity", "--use-normalized=false", "--out", dir); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "ray.svg"))
	if err != nil || !strings.Contains(string(svg), ">Interactivity (token/s/usr), log scale<") || !strings.Contains(string(svg), ">Output Throughput (token/s)<") {
		t.Errorf("%v, or another figure", err)
	}
	var usage config.UsageError
	for want, args := range map[string][]string{
		`--throughput-metric "bytes": want one of [output input total requests]`: {"--throughput-metric", "bytes"},
		`--chunk-size 0: want at least 1`:                                        {"--chunk-size", "0"},
	} {
		if _, _, err := runBenchCmd(t.Context(), append([]string{"report", savedSweep, "--format", "ray"}, args...)...); !errors.As(err, &usage) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, _, err = runBenchCmd(t.Context(), "report", savedSweep, "--format", "ray", "--latency-mode", "word")
	if want := `--latency-mode "word": want one of [token first_token chunk]`; !errors.As(err, &usage) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	file := filepath.Join(dir, "ray.svg")
	if _, _, err = runBenchCmd(t.Context(), "report", savedSweep, "--out", file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("--out is a file: %v", err)
	}
}
