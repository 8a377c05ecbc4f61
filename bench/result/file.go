package result

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Suffix is the end of the names of saved runs.
const Suffix = ".run.json"

// LinesSuffix is the end of the names of files with the lines of the engines.
const LinesSuffix = ".engines.log"

// Save writes the whole run to path, or nothing. The lines of its engines, if there are any, go into a file beside it.
func (r *Run) Save(path string) error {
	if len(r.EngineLines) > 0 {
		name := strings.TrimSuffix(path, Suffix) + LinesSuffix
		if err := os.WriteFile(name, []byte(strings.Join(r.EngineLines, "\n")+"\n"), 0o644); err != nil {
			return fmt.Errorf("save the lines of the engines: %w", err)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".run-*")
	if err != nil {
		return fmt.Errorf("save the run: %w", err)
	}
	out := bufio.NewWriter(f)
	err = json.NewEncoder(out).Encode(r)
	if err = errors.Join(err, out.Flush(), f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("save the run: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Load reads a saved run.
func Load(path string) (*Run, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load a run: %w", err)
	}
	r := &Run{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("load the run %s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("load the run %s: schema %q, want %q", path, r.Schema, Schema)
	}
	r.Sum()
	return r, nil
}

// LoadAll reads the runs of directories, and of files: saved runs, and results of vllm bench serve, inference-perf and llm-d.
// The oldest come first.
func LoadAll(paths []string) (runs []*Run, err error) {
	for _, path := range paths {
		var some []*Run
		if info, statErr := os.Stat(path); statErr != nil {
			return nil, fmt.Errorf("load the runs: %w; give a directory of --out, or a file of results", statErr)
		} else if info.IsDir() {
			some, err = LoadDir(path)
		} else {
			some, err = open(path)
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, some...)
	}
	slices.SortStableFunc(runs, func(a, b *Run) int { return a.Started.Compare(b.Started) })
	return runs, nil
}

// LoadDir reads the saved runs of a directory, the oldest first.
func LoadDir(dir string) ([]*Run, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+Suffix))
	if err != nil {
		return nil, fmt.Errorf("load the runs in %s: %w", dir, err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("load the runs in %s: no file ends with %s", dir, Suffix)
	}
	runs := make([]*Run, 0, len(names))
	for _, name := range names {
		r, err := Load(name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b *Run) int { return a.Started.Compare(b.Started) })
	return runs, nil
}
