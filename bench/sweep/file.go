// Package sweep measures several targets under several loads, one cell after the other. It reads the
// cells from a file, skips those already measured, and saves each as a run.
package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"xpyd/internal/nearest"
)

// File is a sweep. Its keys are those of the YAML file.
type File struct {
	Name  string `yaml:"name"`
	About string `yaml:"about"` // printed before the sweep
	Model string `yaml:"model"` // default: the first that each target lists
	API   string `yaml:"api"`

	Repeats int     `yaml:"repeats"`
	Order   string  `yaml:"order"` // ByCell or ByTarget
	Seed    *uint64 `yaml:"seed"`  // default: drawn for each cell
	Warmups int     `yaml:"warmups"`

	Goodput      map[string]float64 `yaml:"goodput"` // bounds in ms
	Metrics      []string           `yaml:"metrics"`
	Percentiles  []float64          `yaml:"percentiles"`
	MaxLateness  time.Duration      `yaml:"max_lateness"`
	Timeout      time.Duration      `yaml:"timeout"`
	StallTimeout time.Duration      `yaml:"stall_timeout"`
	Temperature  *float64           `yaml:"temperature"`

	Targets   []Target   `yaml:"targets"`
	Workloads []Workload `yaml:"workloads"`
	Loads     []Load     `yaml:"loads"` // of workloads that have none of their own
	Also      []Load     `yaml:"also"`  // further ones, which are measured only if they are asked for (AddFurther, OnlyLoads)

	// Set by flags, not by the file.
	Tool     string      `yaml:"-"` // the program and its version
	Header   http.Header `yaml:"-"` // on each request
	Key      string      `yaml:"-"`
	Insecure bool        `yaml:"-"`

	maxPrompts int      // of a cell; 0: no bound
	further    bool     // the loads of also are cells too
	onlyLoads  []string // the names of the loads that are cells; empty for all

	dir string // for relative paths and for commands; "" for the process's own
}

// The orders in which cells are measured.
const (
	ByCell   = "cell"   // targets alternate from cell to cell
	ByTarget = "target" // a target has all its cells of a repeat in a row; the default if targets must be started
)

// Target is a server, or a topology of engines behind one.
type Target struct {
	Name       string   `yaml:"name"`
	URL        string   `yaml:"url"`
	Model      string   `yaml:"model"`
	Prefill    int      `yaml:"prefill"` // engines; default: by the name, see topology.go
	Decode     int      `yaml:"decode"`
	Collocated int      `yaml:"collocated"`
	GPUs       float64  `yaml:"gpus"`
	Engines    []string `yaml:"engines"` // NAME=URL or NAME:GPUS=URL, as --engine

	Up    string        `yaml:"up"`    // a shell command that starts it
	Down  string        `yaml:"down"`  // and one that ends it
	Ready time.Duration `yaml:"ready"` // longest time from up to its first answer
}

// The kinds of workloads.
const (
	Mixed        = "mixed"
	PrefillOnly  = "prefill-only"  // answers of one token
	DecodeOnly   = "decode-only"   // prompts of one token
	DecodeCached = "decode-cached" // prompts that are cached before the run
)

// Workload is what is sent.
type Workload struct {
	Name       string  `yaml:"name"`
	Kind       string  `yaml:"kind"`
	Dataset    string  `yaml:"dataset"`
	File       string  `yaml:"file"`
	InputLen   int     `yaml:"input_len"`
	OutputLen  int     `yaml:"output_len"`
	PrefixLen  int     `yaml:"prefix_len"`
	RangeRatio float64 `yaml:"range_ratio"`
	IgnoreEOS  *bool   `yaml:"ignore_eos"` // default: true for random and trace
	Loads      []Load  `yaml:"loads"`
	Also       []Load  `yaml:"also" json:"-"`
}

// Load is when it is sent. Each combination of the lists is a cell.
type Load struct {
	Rate        numbers       `yaml:"rate"`        // requests a second
	Concurrency ints          `yaml:"concurrency"` // answers open at once
	NumPrompts  ints          `yaml:"num_prompts"`
	PerPlace    int           `yaml:"prompts_per_concurrency"` // in place of num_prompts
	Duration    time.Duration `yaml:"duration"`
	Burstiness  *float64      `yaml:"burstiness"`
}

// ints is a list, or one number.
type ints []int

func (l *ints) UnmarshalYAML(n *yaml.Node) error { return oneOrMany(n, (*[]int)(l)) }

// numbers is a list, or one number.
type numbers []float64

func (l *numbers) UnmarshalYAML(n *yaml.Node) error { return oneOrMany(n, (*[]float64)(l)) }

func oneOrMany[T any](n *yaml.Node, to *[]T) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode(to)
	}
	var one T
	if err := n.Decode(&one); err != nil {
		return err
	}
	*to = []T{one}
	return nil
}

// Open reads the file of a sweep. The file may lack targets, which flags may add. Validate checks for
// them.
func Open(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the sweep: %w", err)
	}
	f, err := Parse(path, text)
	if err != nil {
		return nil, err
	}
	f.dir = filepath.Dir(path)
	if f.Name == "" {
		f.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return f, nil
}

// Parse reads the text of a sweep. source names it in errors, with the line.
func Parse(source string, text []byte) (*File, error) {
	f := &File{}
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", source, plain(err))
	}
	var second yaml.Node
	if err := in.Decode(&second); err == nil {
		return nil, fmt.Errorf("%s: line %d is in a second YAML document: want one; remove the --- above it", source, second.Content[0].Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", source, plain(err))
	}
	f.setDefaults()
	if p := f.check(); p != nil {
		return nil, fmt.Errorf("%s: %s%w", source, p.line(text), p)
	}
	return f, nil
}

var (
	yamlWords = regexp.MustCompile(`yaml: (unmarshal errors:\s+)?`)
	yamlField = regexp.MustCompile(`field (\S+) not found in type (\S+)`)
	yamlType  = regexp.MustCompile("cannot unmarshal !!(\\S+) `([^`]*)` into (\\S+)")
	yamlList  = regexp.MustCompile(`cannot unmarshal !!(seq|map) into \S+`)
)

// plain puts an error of the YAML library into words for users who do not know Go.
func plain(err error) string {
	faults := []string{err.Error()}
	if several := new(yaml.TypeError); errors.As(err, &several) {
		faults = several.Errors
	}
	for i, text := range faults {
		faults[i] = plainFault(text)
	}
	return strings.Join(faults, "; ")
}

func plainFault(text string) string {
	text = yamlWords.ReplaceAllString(text, "")
	text = yamlField.ReplaceAllStringFunc(text, func(found string) string {
		part := yamlField.FindStringSubmatch(found)
		if near := nearest.Name(part[1], keysOf(part[2])); near != "" {
			return fmt.Sprintf("no key is called %s, the nearest is %s", part[1], near)
		}
		return "no key is called " + part[1]
	})
	text = yamlType.ReplaceAllStringFunc(text, func(found string) string {
		part := yamlType.FindStringSubmatch(found)
		want := "another type"
		switch {
		case strings.Contains(part[3], "int"):
			want = "a whole number"
		case strings.Contains(part[3], "float"):
			want = "a number"
		case strings.Contains(part[3], "Duration"):
			want = "a time such as 30s"
		case strings.Contains(part[3], "bool"):
			want = "true or false"
		case strings.HasPrefix(part[3], "[]"):
			want = "a list"
		}
		return fmt.Sprintf("%q: want %s", part[2], want)
	})
	text = yamlList.ReplaceAllString(text, "want one value, not a list or a map")
	return strings.Join(strings.Fields(text), " ")
}

// keysOf lists the keys of a part of the file, which is named as in errors of the YAML library.
func keysOf(name string) (keys []string) {
	for _, part := range []any{File{}, Target{}, Workload{}, Load{}} {
		t := reflect.TypeOf(part)
		for i := 0; t.String() == name && i < t.NumField(); i++ {
			if key := t.Field(i).Tag.Get("yaml"); key != "" && key != "-" {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func (f *File) setDefaults() {
	set := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	set(&f.API, "completions")
	if f.Repeats == 0 {
		f.Repeats = 1
	}
	if f.MaxLateness == 0 {
		f.MaxLateness = 100 * time.Millisecond
	}
	if f.Timeout == 0 {
		f.Timeout = 6 * time.Hour
	}
	if f.StallTimeout == 0 {
		f.StallTimeout = 5 * time.Minute
	}
	if f.Metrics == nil {
		f.Metrics = []string{"ttft", "tpot", "itl", "e2el"}
	}
	if f.Percentiles == nil {
		f.Percentiles = []float64{50, 90, 99}
	}
	for i := range f.Targets {
		f.Targets[i].setDefaults()
	}
	for i := range f.Workloads {
		w := &f.Workloads[i]
		set(&w.Kind, Mixed)
		set(&w.Dataset, "random")
		set(&w.Name, w.Kind)
	}
}

// burstiness is that of a Poisson process by default.
func (l Load) burstiness() float64 {
	if l.Burstiness == nil {
		return 1
	}
	return *l.Burstiness
}

// rates is the list of rates, with +Inf for none.
func (l Load) rates() []float64 {
	if len(l.Rate) == 0 {
		return []float64{math.Inf(1)}
	}
	return l.Rate
}
