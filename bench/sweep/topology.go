package sweep

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"xpyd/bench/engines"
)

// The names of topologies: 2P1D; 4xtp2; p2xtp1-d1xtp4. tp is tensor parallelism, the number of GPUs of
// an engine. The rest of a name does not matter, as in spread-p1xtp4-d1xtp4-tcp.
var (
	ratioName      = regexp.MustCompile(`(?i)(?:^|[^a-z0-9])(\d+)p(\d+)d(?:$|[^a-z0-9])`)
	splitName      = regexp.MustCompile(`(?i)(?:^|[^a-z0-9])p(\d+)xtp(\d+)-d(\d+)xtp(\d+)(?:$|[^a-z0-9])`)
	collocatedName = regexp.MustCompile(`(?i)(?:^|[^a-z0-9])(\d+)xtp(\d+)(?:$|[^a-z0-9])`)
)

const readyTime = 15 * time.Minute

// setDefaults takes the numbers of engines and GPUs from the target's engines or its name, if it has
// none of its own.
func (t *Target) setDefaults() {
	if t.Ready == 0 {
		t.Ready = readyTime
	}
	if t.Prefill+t.Decode+t.Collocated > 0 {
		return
	}
	if len(t.Engines) > 0 {
		t.countEngines()
		return
	}
	t.countByName()
}

func (t *Target) countEngines() {
	gpus, all := 0.0, true
	for _, text := range t.Engines {
		spec, err := engines.Parse(text)
		if err != nil {
			return // check reports it
		}
		switch spec.Role {
		case engines.Prefill:
			t.Prefill++
		case engines.Decode:
			t.Decode++
		default:
			t.Collocated++
		}
		gpus += spec.GPUs
		all = all && spec.GPUs > 0
	}
	if t.GPUs == 0 && all {
		t.GPUs = gpus
	}
}

func (t *Target) countByName() {
	gpus := 0
	if n := found(splitName, t.Name); n != nil {
		t.Prefill, t.Decode, gpus = n[0], n[2], n[0]*n[1]+n[2]*n[3]
	} else if n := found(collocatedName, t.Name); n != nil {
		t.Collocated, gpus = n[0], n[0]*n[1]
	} else if n := found(ratioName, t.Name); n != nil {
		t.Prefill, t.Decode = n[0], n[1]
	}
	if t.GPUs == 0 {
		t.GPUs = float64(gpus)
	}
}

func found(name *regexp.Regexp, in string) (n []int) {
	parts := name.FindStringSubmatch(in)
	if parts == nil {
		return nil
	}
	for _, part := range parts[1:] {
		x, err := strconv.Atoi(part)
		if err != nil {
			return nil // a number that no machine has
		}
		n = append(n, x)
	}
	return n
}

// AddTarget adds a target that a flag names, NAME=URL or NAME:GPUS=URL.
func (f *File) AddTarget(text string) error {
	name, gpus, url, err := engines.SplitTarget(text)
	if err != nil {
		return err
	}
	for i := range f.Targets { // a preset's template of a target has counts, but no URL
		if t := &f.Targets[i]; t.Name == name {
			t.URL = url
			if gpus > 0 {
				t.GPUs = gpus
			}
			return nil
		}
	}
	t := Target{Name: name, URL: url, GPUs: gpus}
	t.setDefaults()
	f.Targets = append(f.Targets, t)
	return nil
}

// AddURL adds a target that has its address for a name.
func (f *File) AddURL(address string, behind []string) error {
	if err := engines.CheckURL(address); err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	for _, text := range behind {
		if _, err := engines.Parse(text); err != nil {
			return fmt.Errorf("--engine %w", err)
		}
	}
	t := Target{Name: strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://"), URL: address, Engines: behind}
	t.setDefaults()
	f.Targets = append(f.Targets, t)
	return nil
}

// Only keeps the workloads of these names; no names keep all.
func (f *File) Only(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(f.Workloads, func(w Workload) bool { return w.Name == name }) {
			return fmt.Errorf("--workload %q: the sweep has none of that name", name)
		}
	}
	if len(names) > 0 {
		f.Workloads = slices.DeleteFunc(f.Workloads, func(w Workload) bool { return !slices.Contains(names, w.Name) })
	}
	return nil
}

// AddFurther adds the loads that the file has under also.
func (f *File) AddFurther() { f.further = true }

// OnlyLoads keeps the loads of these names, such as rate2-n200, also those under also; no names keep all but those.
func (f *File) OnlyLoads(names []string) error {
	f.onlyLoads = nil
	all := *f
	all.further, all.maxPrompts = true, 0
	var known []string
	for _, c := range all.shapes(1) {
		if !slices.Contains(known, c.Load()) {
			known = append(known, c.Load())
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--load %q: the sweep has %s", name, strings.Join(known, ", "))
		}
	}
	f.onlyLoads = names
	return nil
}

// Shorten bounds the repeats and the requests of each cell; 0 leaves them.
func (f *File) Shorten(repeats, prompts int) {
	if repeats > 0 {
		f.Repeats = repeats
	}
	f.maxPrompts = prompts
}
