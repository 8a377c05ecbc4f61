package sweep

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"xpyd/bench/dataset"
	"xpyd/bench/engines"
)

// problem is an invalid value at a path such as targets[1].url.
type problem struct {
	path string
	text string
}

func (p *problem) Error() string { return p.path + ": " + p.text }

func problemf(path, format string, args ...any) *problem {
	return &problem{path: path, text: fmt.Sprintf(format, args...)}
}

// line is "line N: " for the node of the path, or for its nearest parent in text.
func (p *problem) line(text []byte) string {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		return ""
	}
	at := doc.Content[0]
	for part := range strings.FieldsFuncSeq(p.path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		next := child(at, part)
		if next == nil {
			break
		}
		at = next
	}
	return fmt.Sprintf("line %d: ", at.Line)
}

// child is the value of a key or the element of an index; nil for none.
func child(n *yaml.Node, part string) *yaml.Node {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(part); err == nil && i < len(n.Content) {
			return n.Content[i]
		}
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == part {
			return n.Content[i+1]
		}
	}
	return nil
}

// check reports the first invalid value; nil for none.
func (f *File) check() *problem {
	switch {
	case f.Repeats < 1:
		return problemf("repeats", "%d: want at least 1", f.Repeats)
	case f.API != "completions" && f.API != "chat":
		return problemf("api", "%q: want completions or chat", f.API)
	case f.Order != "" && f.Order != ByCell && f.Order != ByTarget:
		return problemf("order", "%q: want %s or %s", f.Order, ByCell, ByTarget)
	case f.Warmups < 0:
		return problemf("warmups", "%d: want at least 0", f.Warmups)
	}
	names := map[string]bool{}
	for i := range f.Targets {
		path := fmt.Sprintf("targets[%d]", i)
		if p := f.Targets[i].check(path, names); p != nil {
			return p
		}
	}
	names = map[string]bool{}
	for i := range f.Workloads {
		path := fmt.Sprintf("workloads[%d]", i)
		if p := f.Workloads[i].check(path, names); p != nil {
			return p
		}
		if len(f.Workloads[i].Loads) == 0 && len(f.Loads) == 0 {
			return problemf(path, "no loads, neither here nor for all: want rates, concurrencies or numbers of prompts")
		}
	}
	if p := checkLoads("loads", f.Loads); p != nil {
		return p
	}
	return checkLoads("also", f.Also)
}

func (t *Target) check(path string, names map[string]bool) *problem {
	switch {
	case t.Name == "":
		return problemf(path+".name", "want one")
	case names[t.Name]:
		return problemf(path+".name", "%q is listed twice", t.Name)
	case t.Prefill < 0 || t.Decode < 0 || t.Collocated < 0 || t.GPUs < 0:
		return problemf(path, "counts of engines and GPUs cannot be negative")
	case t.Down != "" && t.Up == "":
		return problemf(path+".down", "want up as well")
	case t.Ready < 0:
		return problemf(path+".ready", "%s: want more than 0", t.Ready)
	}
	names[t.Name] = true
	if t.URL != "" {
		if err := engines.CheckURL(t.URL); err != nil {
			return problemf(path+".url", "%v", err)
		}
	}
	for i, text := range t.Engines {
		if _, err := engines.Parse(text); err != nil {
			return problemf(fmt.Sprintf("%s.engines[%d]", path, i), "%v", err)
		}
	}
	return nil
}

func (w *Workload) check(path string, names map[string]bool) *problem {
	switch w.Kind {
	case Mixed, PrefillOnly, DecodeOnly, DecodeCached:
	default:
		return problemf(path+".kind", "%q: want %s, %s, %s or %s", w.Kind, Mixed, PrefillOnly, DecodeOnly, DecodeCached)
	}
	if names[w.Name] {
		return problemf(path+".name", "%q is listed twice", w.Name)
	}
	names[w.Name] = true
	if err := w.dataset("").Validate(); err != nil {
		return problemf(path, "%v", err)
	}
	if w.Dataset == dataset.Sonnet && (w.InputLen < 1 || w.OutputLen < 1 && w.Kind != PrefillOnly) {
		return problemf(path, "want input_len and output_len")
	}
	if p := checkLoads(path+".loads", w.Loads); p != nil {
		return p
	}
	return checkLoads(path+".also", w.Also)
}

func checkLoads(path string, loads []Load) *problem {
	for i, l := range loads {
		if p := l.check(fmt.Sprintf("%s[%d]", path, i)); p != nil {
			return p
		}
	}
	return nil
}

func (l Load) check(path string) *problem {
	for i, rate := range l.Rate {
		if !(rate > 0) {
			return problemf(fmt.Sprintf("%s.rate[%d]", path, i), "%v: want more than 0 requests a second", rate)
		}
	}
	for i, n := range l.Concurrency {
		if n < 1 {
			return problemf(fmt.Sprintf("%s.concurrency[%d]", path, i), "%d: want at least 1", n)
		}
	}
	for i, n := range l.NumPrompts {
		if n < 1 {
			return problemf(fmt.Sprintf("%s.num_prompts[%d]", path, i), "%d: want at least 1", n)
		}
	}
	switch {
	case l.Burstiness != nil && !(*l.Burstiness > 0):
		return problemf(path+".burstiness", "%v: want more than 0", *l.Burstiness)
	case l.Duration < 0:
		return problemf(path+".duration", "%s: want more than 0", l.Duration)
	case l.PerPlace < 0:
		return problemf(path+".prompts_per_concurrency", "%d: want at least 1", l.PerPlace)
	case l.PerPlace > 0 && len(l.NumPrompts) > 0:
		return problemf(path, "want num_prompts or prompts_per_concurrency, not both")
	case l.PerPlace > 0 && len(l.Concurrency) == 0:
		return problemf(path+".prompts_per_concurrency", "want concurrency as well")
	case l.PerPlace == 0 && len(l.NumPrompts) == 0 && l.Duration == 0:
		return problemf(path, "want num_prompts, prompts_per_concurrency or duration")
	case len(l.NumPrompts) == 0 && l.PerPlace == 0 && len(l.Rate) == 0 && len(l.Concurrency) == 0:
		return problemf(path, "a duration without a rate and without a concurrency would send without end")
	}
	return nil
}

// Validate reports what a file still lacks, or has wrong, to be a sweep.
func (f *File) Validate() error {
	if len(f.Targets) == 0 {
		return errors.New("no target: want targets in the file, --target NAME=URL, or --url")
	}
	for _, t := range f.Targets {
		if t.URL == "" {
			return fmt.Errorf("target %s has no url", t.Name)
		}
	}
	if len(f.Workloads) == 0 {
		return errors.New("no workload: want at least one under workloads")
	}
	for i := range f.Workloads {
		w := &f.Workloads[i]
		if path := w.dataset(f.dir).File; path != "" {
			if _, err := os.Stat(path); err != nil { // before the first cells take their time
				return fmt.Errorf("workload %s: file: %w; give one that exists", w.Name, err)
			}
		}
	}
	seen := map[string]bool{}
	for _, c := range f.Cells() {
		if seen[c.File()] {
			return fmt.Errorf("two cells would have the same file name, %s: the load is there twice, or two names differ only in punctuation", c.File())
		}
		seen[c.File()] = true
		if o := f.Options(&c); o.Validate() != nil {
			return o.Validate()
		}
	}
	return nil
}
