package sweep

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"xpyd/bench"
	"xpyd/bench/client"
	"xpyd/bench/dataset"
	"xpyd/bench/load"
	"xpyd/bench/result"
)

// Cell is one run of a sweep.
type Cell struct {
	Target   *Target
	Workload *Workload
	Repeat   int // from 1

	Rate        float64 // +Inf: all at once, or as the cap allows
	Concurrency int     // 0: no cap
	NumPrompts  int     // 0: until the duration ends
	Duration    time.Duration
	Burstiness  float64
}

// Cells lists the cells in the order of measurement. The order rotates, so no target is always first:
// a machine that warms up, or a network that is busy at noon, must not favour a target.
func (f *File) Cells() (cells []Cell) {
	order := f.Order
	for _, t := range f.Targets {
		if order == "" && t.Up != "" {
			order = ByTarget
		}
	}
	for repeat := range f.Repeats {
		shapes := f.shapes(repeat + 1)
		if order == ByTarget {
			for k := range f.Targets {
				t := &f.Targets[(k+repeat)%len(f.Targets)]
				for _, c := range shapes {
					c.Target = t
					cells = append(cells, c)
				}
			}
			continue
		}
		for i, c := range shapes {
			for k := range f.Targets {
				c.Target = &f.Targets[(k+i+repeat)%len(f.Targets)]
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// shapes are the cells of a repeat without their target.
func (f *File) shapes(repeat int) (cells []Cell) {
	for i := range f.Workloads {
		w := &f.Workloads[i]
		loads := w.Loads
		if len(loads) == 0 {
			loads = f.Loads
		}
		if f.further || len(f.onlyLoads) > 0 {
			loads = slices.Concat(loads, w.Also, f.Also)
		}
		for _, l := range loads {
			cells = append(cells, l.cells(Cell{Workload: w, Repeat: repeat, Duration: l.Duration, Burstiness: l.burstiness()})...)
		}
	}
	if len(f.onlyLoads) > 0 {
		cells = slices.DeleteFunc(cells, func(c Cell) bool { return !slices.Contains(f.onlyLoads, c.Load()) })
	}
	if f.maxPrompts > 0 {
		cells = bounded(cells, f.maxPrompts)
	}
	return cells
}

// cells combines the lists of a load.
func (l Load) cells(c Cell) (cells []Cell) {
	caps, prompts := l.Concurrency, l.NumPrompts
	if len(caps) == 0 {
		caps = ints{0}
	}
	if len(prompts) == 0 {
		prompts = ints{0}
	}
	for _, c.Rate = range l.rates() {
		for _, c.Concurrency = range caps {
			for _, c.NumPrompts = range prompts {
				if l.PerPlace > 0 {
					c.NumPrompts = l.PerPlace * c.Concurrency
				}
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// bounded caps the requests of cells, and drops cells that are then the same.
func bounded(cells []Cell, prompts int) []Cell {
	for i := range cells {
		if n := cells[i].NumPrompts; n == 0 || n > prompts {
			cells[i].NumPrompts = prompts
		}
	}
	return slices.CompactFunc(cells, func(a, b Cell) bool { return a == b })
}

// Load names the load, as in rate2-n200 or conc8-n40.
func (c *Cell) Load() string {
	var words []string
	if !math.IsInf(c.Rate, 1) {
		words = append(words, fmt.Sprintf("rate%g", c.Rate))
	}
	if c.Concurrency > 0 {
		words = append(words, fmt.Sprintf("conc%d", c.Concurrency))
	}
	if c.NumPrompts > 0 {
		words = append(words, fmt.Sprintf("n%d", c.NumPrompts))
	}
	if c.Duration > 0 {
		words = append(words, c.Duration.String())
	}
	if c.Burstiness != 1 {
		words = append(words, fmt.Sprintf("burst%g", c.Burstiness))
	}
	return strings.Join(words, "-")
}

// String describes the cell in messages.
func (c *Cell) String() string {
	return fmt.Sprintf("%s %s %s repeat %d", c.Target.Name, c.Workload.Name, c.Load(), c.Repeat)
}

var notForFiles = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// File is the name of the cell's saved run, without its suffix.
func (c *Cell) File() string {
	name := fmt.Sprintf("%s--%s--%s--r%d", c.Target.Name, c.Workload.Name, c.Load(), c.Repeat)
	return notForFiles.ReplaceAllString(name, "_")
}

// dataset are the options of the workload's prompts.
func (w *Workload) dataset(dir string) dataset.Options {
	o := dataset.Options{Kind: w.Dataset, File: w.File, InputLen: w.InputLen, OutputLen: w.OutputLen, PrefixLen: w.PrefixLen, RangeRatio: w.RangeRatio}
	if o.File != "" && !filepath.IsAbs(o.File) {
		o.File = filepath.Join(dir, o.File)
	}
	switch w.Kind {
	case PrefillOnly:
		o.OutputLen = 1
	case DecodeOnly:
		o.InputLen, o.PrefixLen, o.RangeRatio = 1, 0, 0
	}
	return o
}

// Options are the options of the cell's benchmark.
func (f *File) Options(c *Cell) bench.Options {
	w := c.Workload
	full := w.Dataset == dataset.Random || w.Dataset == dataset.Trace
	if w.IgnoreEOS != nil {
		full = *w.IgnoreEOS
	}
	late := f.MaxLateness
	if math.IsInf(c.Rate, 1) && c.Concurrency == 0 {
		late = 0 // all are due at once, and no program can send them all at once
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return bench.Options{
		Label: c.Target.Name, Tool: f.Tool,
		Client: client.Options{
			URL: c.Target.URL, API: f.API, Model: orElse(c.Target.Model, f.Model), Header: f.Header, Key: f.Key, Insecure: f.Insecure,
			Temperature: f.Temperature, IgnoreEOS: full, Stall: f.StallTimeout, Timeout: f.Timeout,
		},
		Dataset: w.dataset(f.dir),
		Load: load.Plan{
			Rate: c.Rate, Burstiness: c.Burstiness, Count: c.NumPrompts, Duration: c.Duration, Concurrency: c.Concurrency,
		},
		Seed: f.seed(c), TimesSeed: seedOf(f.Name, w.Name, c.Load(), fmt.Sprint(c.Repeat)),
		Warmups: f.Warmups, Prime: w.Kind == DecodeCached,
		RequestIDPrefix: "bench-" + hex.EncodeToString(id[:]) + "-",
		Goodput:         f.Goodput, Metrics: f.Metrics, Percentiles: f.Percentiles, MaxLate: late,
	}
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// made reports whether a saved run is of this cell with its present settings.
func (f *File) made(c *Cell, run *result.Run) bool {
	cell := run.Config.Cell
	return cell != nil && cell.Sweep == f.Name && cell.Plan == f.digest(c) && (f.Seed == nil || run.Config.Seed == f.seed(c))
}

// seed is the seed of the prompts. Unless the file has one, each call draws a new seed: targets may
// share a prefix cache, and a repeated cell must not find its own prompts there.
func (f *File) seed(c *Cell) uint64 {
	if f.Seed != nil {
		return *f.Seed + seedOf(c.File())>>1
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return uint64(binary.LittleEndian.Uint32(b[:]))
}

// seedOf is a seed for words, never 0.
func seedOf(words ...string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(words, "\x00"))) // never fails
	return uint64(h.Sum32()) | 1
}

// Place is the place of the cell's run in the sweep.
func (f *File) Place(c *Cell) *result.Cell {
	t := c.Target
	return &result.Cell{
		Sweep: f.Name, Target: t.Name, Prefill: t.Prefill, Decode: t.Decode, Collocated: t.Collocated, GPUs: t.GPUs,
		Workload: c.Workload.Name, Repeat: c.Repeat, Plan: f.digest(c),
	}
}

// digest is the same for cells that send the same kind of load in the same way. A target's URL may
// change.
func (f *File) digest(c *Cell) string {
	w := *c.Workload
	w.Loads = nil
	b, err := json.Marshal([]any{f.API, orElse(c.Target.Model, f.Model), f.Temperature, f.Goodput, f.Warmups, w, c.Load()})
	if err != nil {
		panic("BUG: a workload is no JSON: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:6])
}
