package desk

import (
	"time"

	"xpyd/proxy"
)

// The names of outcomes and paths that the desk tells apart.
const (
	outcomeOK    = "ok"
	outcomeGone  = "client_gone"
	outcomeFault = "client_error"
	pathSplit    = "disaggregated"
)

// perToken is the mean gap between the events of the stream, or 0 if there was none.
func perToken(l *proxy.Life) time.Duration {
	if !l.Streamed || l.Events < 2 {
		return 0
	}
	return (l.End - l.First) / time.Duration(l.Events-1)
}

// Phase is a part of a completion's life, in milliseconds from its start.
type Phase struct {
	Name string  `json:"name"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// LifeEntry is a completion as the page shows it.
type LifeEntry struct {
	Seq     uint64  `json:"seq"` // its number since the start
	ID      string  `json:"id"`
	API     string  `json:"api"`
	Path    string  `json:"path,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Outcome string  `json:"outcome"`
	Code    string  `json:"code,omitempty"`
	Prefill string  `json:"prefill,omitempty"`
	Decode  string  `json:"decode,omitempty"`
	Rounds  int     `json:"rounds"`
	Events  int     `json:"events"`
	Start   float64 `json:"start"`    // Unix seconds
	Total   float64 `json:"total_ms"` // milliseconds
	Phases  []Phase `json:"phases"`
}

func entryOf(seq uint64, l *proxy.Life) LifeEntry {
	return LifeEntry{
		Seq: seq, ID: l.ID, API: l.API, Path: l.Path, Reason: l.Reason, Outcome: l.Outcome, Code: l.Code,
		Prefill: l.Prefill, Decode: l.Decode, Rounds: l.Rounds, Events: l.Events,
		Start: float64(l.Start.UnixMilli()) / 1e3, Total: ms(l.End), Phases: phasesOf(l),
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// phasesOf cuts the life into its phases. The legs of some connectors run at the same time, so phases may
// overlap. queue is everything before the last round's first leg: the upload, the wait for a slot, and
// rounds that failed.
func phasesOf(l *proxy.Life) []Phase {
	all := []Phase{}
	add := func(name string, from, to time.Duration) { all = append(all, Phase{name, ms(from), ms(to)}) }
	begun := l.End
	for _, at := range []time.Duration{l.Prefilling, l.Asked} {
		if at > 0 {
			begun = min(begun, at)
		}
	}
	add("queue", 0, begun)
	if l.Prefilling > 0 {
		add("prefill", l.Prefilling, l.Prefilled)
	}
	if l.Asked == 0 {
		return all
	}
	from, first := l.Asked, "compute" // the decode engine computes the prompt itself
	if l.Path == pathSplit {
		first = "transfer" // it pulls the blocks, and makes the first token
		if l.Handed > l.Prefilled {
			add("handoff", l.Prefilled, l.Handed)
			from = l.Handed
		}
	}
	switch {
	case l.First > 0:
		add(first, from, l.First)
		add("stream", l.First, l.End)
	case l.Outcome == outcomeOK:
		add("answer", from, l.End) // it came whole, which does not show its first token
	default:
		add(first, from, l.End)
	}
	return all
}
