package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is one way to misbehave. The package comment has the table of kinds.
// Its text form, in a prompt and for ParseFault, is KIND[=ARG|@N][:fin|:rst], with
// two arguments for drip=N,D and random=SHARE,SEED.
type Fault struct {
	Kind  string        `json:"kind"`
	Arg   string        `json:"arg,omitempty"`      // badhandle: what is bad
	Value int           `json:"value,omitempty"`    // status: the HTTP status; cached: tokens
	At    int           `json:"at,omitempty"`       // stream kinds: the event; truncate, slice, drip: bytes
	End   string        `json:"end,omitempty"`      // "fin" (default) or "rst": how a connection breaks off
	Delay time.Duration `json:"delay_ns,omitempty"` // delay, slow-accept: how long; drip: between two pieces; in ns in JSON
	Leg   string        `json:"leg,omitempty"`      // engine-wide: "P" or "D" alone; default both
	Count int           `json:"count,omitempty"`    // engine-wide: how many requests; 0 = until replaced
	Share float64       `json:"share,omitempty"`    // random: the part of the requests that get a fault, above 0, at most 1
	Seed  uint64        `json:"seed,omitempty"`     // random: the same seed draws the same faults
}

// The kinds of faults.
const (
	FaultRefuse    = "refuse"
	FaultRST       = "rst"
	FaultFIN       = "fin"
	FaultHang      = "hang"
	FaultDelay     = "delay"
	FaultStatus    = "status"
	FaultKill      = "kill"
	FaultTruncate  = "truncate"
	FaultBadJSON   = "badjson"
	FaultNoHandle  = "nohandle"
	FaultBadHandle = "badhandle"
	FaultCached    = "cached"
	FaultZero      = "zero"
	FaultKVFail    = "kvfail"
	FaultErrFirst  = "error-first"
	FaultErrDone   = "error-done"
	FaultErrCut    = "error-cut"
	FaultDie       = "die"
	FaultCut       = "cut"
	FaultStall     = "stall"
	FaultNoDone    = "no-done"
	FaultNoFinish  = "no-finish"
	FaultSlice     = "slice"
	FaultLate      = "late"
	FaultDrip      = "drip"
	FaultRoleError = "role-error"
	FaultCorrupt   = "corrupt"
	FaultAccept    = "slow-accept"
	FaultRandom    = "random"
)

var faultKinds = []string{
	FaultRefuse, FaultRST, FaultFIN, FaultHang, FaultDelay, FaultStatus, FaultKill, FaultTruncate, FaultBadJSON,
	FaultNoHandle, FaultBadHandle, FaultCached, FaultZero, FaultKVFail, FaultErrFirst, FaultErrDone, FaultErrCut,
	FaultDie, FaultCut, FaultStall, FaultNoDone, FaultNoFinish, FaultSlice, FaultLate,
	FaultDrip, FaultRoleError, FaultCorrupt, FaultAccept, FaultRandom,
}

// engineWide has the kinds that no marker in a prompt can select.
var engineWide = []string{FaultRefuse, FaultAccept, FaultRandom}

// badHandles edits the handle that badhandle=ARG spoils.
var badHandles = map[string]func(map[string]json.RawMessage){
	"null":          nil, // the whole handle, see spoilHandle
	"empty":         nil,
	"port":          setMember("remote_port", `"5600"`),
	"port-zero":     setMember("remote_port", `0`),
	"port-high":     setMember("remote_port", `65536`),
	"port-closed":   setMember("remote_port", `1`),
	"no-port":       dropMember("remote_port"),
	"no-host":       dropMember("remote_host"),
	"host-empty":    setMember("remote_host", `""`),
	"host-null":     setMember("remote_host", `null`),
	"no-engine":     dropMember("remote_engine_id"),
	"engine":        setMember("remote_engine_id", `"no-such-engine"`),
	"no-id":         dropMember("remote_request_id"),
	"id":            setMember("remote_request_id", `"no-such-request"`),
	"no-blocks":     dropMember("remote_block_ids"),
	"null-blocks":   setMember("remote_block_ids", `null`),
	"empty-blocks":  setMember("remote_block_ids", `[]`),
	"empty-group":   setMember("remote_block_ids", `[[]]`),
	"flat-blocks":   setMember("remote_block_ids", `[1,2,3]`),
	"few-blocks":    setMember("remote_block_ids", `[[1]]`),
	"few-tokens":    setMember("remote_num_tokens", `1`),
	"string-blocks": setMember("remote_block_ids", `"[[1]]"`),
	"range-blocks":  setMember("remote_block_ids", `[[99999999,99999998,99999997,99999996,99999995,99999994,99999993,99999992]]`),
	"no-flag":       dropMember("do_remote_prefill"),
	"flag-false":    setMember("do_remote_prefill", `false`),
}

func setMember(name, value string) func(map[string]json.RawMessage) {
	return func(m map[string]json.RawMessage) { m[name] = json.RawMessage(value) }
}

func dropMember(name string) func(map[string]json.RawMessage) {
	return func(m map[string]json.RawMessage) { delete(m, name) }
}

// spoilHandle applies badhandle=what to a handle.
func spoilHandle(raw []byte, what string) []byte {
	switch what {
	case "null":
		return []byte("null")
	case "empty":
		return []byte("{}")
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		panic("BUG: the engine wrote a handle that is no JSON: " + err.Error())
	}
	badHandles[what](m)
	spoilt, err := json.Marshal(m)
	if err != nil {
		panic("BUG: a bad handle is no JSON: " + err.Error())
	}
	return spoilt
}

// ParseFault reads the text form of a fault, as in "die@17:rst", "status=503",
// "delay=200ms", "badhandle=port", "drip=3,10ms", "random=0.1,42".
func ParseFault(text string) (Fault, error) {
	f := Fault{}
	rest, end, found := strings.Cut(text, ":")
	if found {
		f.End = end
	}
	var err error
	if kind, at, found := strings.Cut(rest, "@"); found {
		f.Kind = kind
		f.At, err = strconv.Atoi(at)
	} else if kind, arg, found := strings.Cut(rest, "="); found {
		f.Kind = kind
		err = f.setArg(arg)
	} else {
		f.Kind = rest
	}
	if err != nil {
		return Fault{}, fmt.Errorf("parse fault %q: %w", text, err)
	}
	if f.Kind == "" {
		return Fault{}, fmt.Errorf("parse fault %q: no kind", text)
	}
	return f, f.validate()
}

// setArg reads what follows KIND=.
func (f *Fault) setArg(arg string) (err error) {
	first, second, two := strings.Cut(arg, ",")
	switch f.Kind {
	case FaultDelay, FaultAccept:
		f.Delay, err = time.ParseDuration(arg)
	case FaultStatus, FaultCached:
		f.Value, err = strconv.Atoi(arg)
	case FaultDrip:
		if f.At, err = strconv.Atoi(first); err == nil && two {
			f.Delay, err = time.ParseDuration(second)
		}
	case FaultRandom:
		if f.Share, err = strconv.ParseFloat(first, 64); err == nil && two {
			f.Seed, err = strconv.ParseUint(second, 10, 64)
		}
	default:
		f.Arg = arg
	}
	return err
}

func (f Fault) validate() error {
	if f == (Fault{}) {
		return nil
	}
	if !slices.Contains(faultKinds, f.Kind) {
		return fmt.Errorf("fault kind %q: want one of %s", f.Kind, strings.Join(faultKinds, ", "))
	}
	if f.End != "" && f.End != "fin" && f.End != "rst" {
		return fmt.Errorf("fault %s end %q: want fin or rst", f.Kind, f.End)
	}
	if _, ok := badHandles[f.Arg]; f.Kind == FaultBadHandle && !ok {
		return fmt.Errorf("fault badhandle %q: want one of %s", f.Arg, strings.Join(slices.Sorted(maps.Keys(badHandles)), ", "))
	}
	if f.Kind == FaultStatus && http.StatusText(f.Value) == "" {
		return fmt.Errorf("fault status %d: no such HTTP status", f.Value)
	}
	if f.Kind == FaultRandom && !(f.Share > 0 && f.Share <= 1) {
		return fmt.Errorf("fault random share %v: want more than 0, at most 1", f.Share)
	}
	if f.Kind == FaultDrip && f.At < 1 || f.Kind == FaultAccept && f.Delay == 0 {
		return fmt.Errorf("fault %s: want drip=BYTES,PAUSE or slow-accept=DELAY, more than 0", f.Kind)
	}
	if f.Leg != "" && f.Leg != "P" && f.Leg != "D" || f.At < 0 || f.Count < 0 || f.Delay < 0 {
		return fmt.Errorf("fault %+v: want leg P or D and no negative numbers", f)
	}
	return nil
}

// armedFault is an engine-wide fault, with the number of requests that it still hits.
type armedFault struct {
	Fault
	left int
	dice *rand.Rand // random only
}

// faultsFor lists the faults of a request: first those from the markers of its prompts for leg ("P"
// or "D") or for this engine's name, then the engine's own.
func (e *Engine) faultsFor(prompts []prompt, leg string) (faultSet, error) {
	var set faultSet
	for _, p := range prompts {
		for tag, text := range markers(p.text) {
			if tag != leg && tag != e.o.Name {
				continue
			}
			f, err := ParseFault(text)
			if err != nil {
				return nil, err
			}
			if slices.Contains(engineWide, f.Kind) {
				return nil, fmt.Errorf("fault %s: not for one request alone", f.Kind)
			}
			set = append(set, f)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := &e.fault; f.Kind != "" && (f.Leg == "" || f.Leg == leg) && (f.Count == 0 || f.left > 0) {
		f.left--
		if f.dice == nil {
			set = append(set, f.Fault)
		} else if drawn, ok := draw(f.dice, f.Share, leg); ok {
			set = append(set, drawn)
		}
	}
	return set, nil
}

// markers yields TAG and TEXT of each [[TAG:TEXT]] in a prompt. Markers that choose a style of
// text are not faults.
func markers(prompt string) func(yield func(tag, text string) bool) {
	return func(yield func(tag, text string) bool) {
		for {
			_, rest, found := strings.Cut(prompt, "[[")
			if !found {
				return
			}
			marker, after, found := strings.Cut(rest, "]]")
			if !found {
				return
			}
			prompt = after
			tag, text, found := strings.Cut(marker, ":")
			if found && tag != "text" && !yield(tag, text) {
				return
			}
		}
	}
}

// faultSet has the faults of one request.
type faultSet []Fault

func (s faultSet) find(kind string) (Fault, bool) {
	for _, f := range s {
		if f.Kind == kind {
			return f, true
		}
	}
	return Fault{}, false
}

func (s faultSet) has(kind string) bool {
	_, found := s.find(kind)
	return found
}
