package engines

import (
	"bytes"
	"strconv"

	"xpyd/kvparams"
	"xpyd/router"
)

// ways are how an engine tells what it is asked beside completions.
type ways struct {
	vitals  string           // the path that it answers at once, if it lives
	version string           // the path whose answer has its version
	series  *kvparams.Series // what it calls its metrics; nil for vLLM's names
}

func waysOf(d kvparams.Dialect) ways {
	if f, ok := d.(kvparams.Foreign); ok {
		series := f.Series()
		return ways{f.Vitals(), f.Version(), &series}
	}
	return ways{vitals: "/health", version: "/version"}
}

// quantities are the families of what an engine that is not vLLM tells.
var quantities = [...]family{
	kvparams.Running: famRunning, kvparams.Waiting: famWaiting, kvparams.KVUsage: famUsage, kvparams.BlockSize: famBlockSize, kvparams.Blocks: famBlocks,
	kvparams.PromptTokens: famPrompt, kvparams.GenerationTokens: famGeneration,
}

// parseForeign is parsePage for an engine that has series of its own.
func parseForeign(text []byte, s *kvparams.Series, rank int) (router.EngineState, error) {
	var p page
	for line := range bytes.Lines(text) {
		p.foreign(bytes.TrimSuffix(line, []byte("\n")), s, rank)
	}
	p[famPartBlocks].n++ // nothing says that there is a block for every BlockSize tokens
	return p.state(loadNames{nameOf(s, kvparams.Running), nameOf(s, kvparams.Waiting), nameOf(s, kvparams.KVUsage)})
}

func (p *page) foreign(line []byte, s *kvparams.Series, rank int) {
	line, ours := bytes.CutPrefix(line, []byte(s.Prefix))
	if !ours {
		if rest, ok := bytes.CutPrefix(line, []byte("process_start_time_seconds")); ok {
			p.sample(famStarted, rest)
		}
		return
	}
	end := bytes.IndexByte(line, '{')
	if end < 0 {
		end = max(bytes.IndexAny(line, " \t"), 0)
	}
	name, rest := bytes.TrimSuffix(line[:end], []byte("_total")), line[end:]
	for i := range s.Of {
		if m := &s.Of[i]; string(name) == m.Name && (m.Counts || whole(rest, s.Whole)) && ofRank(rest, s.Rank, rank, m.Counts) {
			p.sample(quantities[m.Quantity], rest)
		}
	}
}

// ofRank reports whether a sample is about that rank, by the label. A counter without it is about the whole engine, and what
// else has none about each rank.
func ofRank(rest []byte, label string, rank int, counter bool) bool {
	if rank < 0 {
		return true
	}
	for l, ok := startLabels(rest); ok && !l.done; l, ok = l.next() {
		if string(l.name) == label {
			return string(l.value) == strconv.Itoa(rank)
		}
	}
	return !counter
}

// whole reports that a sample neither repeats another one nor is part of it.
func whole(rest []byte, labels []kvparams.Label) bool {
	l, ok := startLabels(rest)
	for ; ok && !l.done; l, ok = l.next() {
		for _, want := range labels {
			if string(l.name) == want.Name && string(l.value) != want.Value {
				return false
			}
		}
	}
	return true
}

// nameOf is the metric that every engine has of a quantity.
func nameOf(s *kvparams.Series, q kvparams.Quantity) string {
	for _, m := range s.Of {
		if m.Quantity == q {
			return s.Prefix + m.Name
		}
	}
	return s.Prefix
}
