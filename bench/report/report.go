// Package report prints saved runs, one printer a format.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"xpyd/bench/result"
)

// format is one printer.
type format struct {
	name  string
	about string
	print func(w *strings.Builder, runs []*result.Run) error
}

func formats() []format {
	return []format{
		{"vllm", "the block of vllm bench serve", eachRun(vllmBlock)},
		{"seed", "the block of vllm's benchmark_serving.py of 2024 and 2025", eachRun(seedBlock)},
		{"vllm-json", "the result file of vllm bench serve, an object a line", eachRun(vllmJSON)},
		{"csv", "a line a run, every figure", csvTable},
		{"table", "a line a run for people", plainTable},
		{"mooncake", "a Markdown table of 18 columns, a row a run", mooncake},
	}
}

// Formats lists the names of formats.
func Formats() (names []string) {
	for _, f := range formats() {
		names = append(names, f.name)
	}
	return names
}

// About is a line on a format.
func About(name string) string {
	for _, f := range formats() {
		if f.name == name {
			return f.about
		}
	}
	return ""
}

// Print writes runs in a format.
func Print(out io.Writer, name string, runs []*result.Run) error {
	all := formats()
	i := slices.IndexFunc(all, func(f format) bool { return f.name == name })
	if i < 0 {
		return fmt.Errorf("format %q: want one of %s", name, strings.Join(Formats(), ", "))
	}
	var b strings.Builder
	if err := all[i].print(&b, runs); err != nil {
		return fmt.Errorf("print %s: %w", name, err)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("print %s: %w", name, err)
	}
	return nil
}

func eachRun(print func(*strings.Builder, *result.Run) error) func(*strings.Builder, []*result.Run) error {
	return func(w *strings.Builder, runs []*result.Run) error {
		for _, r := range runs {
			if err := print(w, r); err != nil {
				return err
			}
		}
		return nil
	}
}
