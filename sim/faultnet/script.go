package faultnet

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Script is what is done to one connection. Up has the ops on the bytes from the client to the
// target, Down those on the bytes from the target to the client.
type Script struct{ Up, Down []Op }

// Op is one fault. The package comment has the table of kinds.
type Op struct {
	Kind string
	N    int64         // the offset in bytes; slice: bytes a piece; rate: bytes a second
	D    time.Duration // delay, slice: the pause
}

// The kinds of ops.
const (
	Delay     = "delay"
	Slice     = "slice"
	Rate      = "rate"
	RST       = "rst"
	FIN       = "fin"
	Stall     = "stall"
	Blackhole = "blackhole"
	Corrupt   = "corrupt"
	Refuse    = "refuse"
	NoRead    = "noread"
)

// Parse reads a script's text form. Ops follow "up:" or "down:", except those that affect only the
// whole connection. Blanks stand between them, as in "down:delay=20ms down:slice=1,1ms up:rst@100".
func Parse(text string) (Script, error) {
	var s Script
	for word := range strings.FieldsSeq(text) {
		way, rest, found := strings.Cut(word, ":")
		if !found {
			rest = word
		}
		op, err := parseOp(rest)
		if err != nil {
			return Script{}, fmt.Errorf("parse op %q: %w", word, err)
		}
		switch {
		case found == op.whole():
			return Script{}, fmt.Errorf("parse op %q: want up: or down: before an op on bytes, nothing before refuse and noread", word)
		case !found || way == "up":
			s.Up = append(s.Up, op)
		case way == "down":
			s.Down = append(s.Down, op)
		default:
			return Script{}, fmt.Errorf("parse op %q: direction %q: want up or down", word, way)
		}
	}
	return s, nil
}

func parseOp(text string) (op Op, err error) {
	if kind, at, found := strings.Cut(text, "@"); found {
		op.Kind = kind
		if op.N, err = strconv.ParseInt(at, 10, 64); err != nil {
			return Op{}, err
		}
		if !op.placed() {
			return Op{}, fmt.Errorf("kind %q takes no offset", kind)
		}
		return op, op.validate()
	}
	kind, arg, found := strings.Cut(text, "=")
	op.Kind = kind
	size, pause := "", ""
	switch kind {
	case Delay:
		pause = arg
	case Rate:
		size = arg
	case Slice:
		size, pause, _ = strings.Cut(arg, ",")
	default:
		if found || op.placed() {
			return Op{}, fmt.Errorf("kind %q: want an offset behind @, and no argument", kind)
		}
	}
	if size != "" {
		op.N, err = strconv.ParseInt(size, 10, 64)
	}
	if pause != "" && err == nil {
		op.D, err = time.ParseDuration(pause)
	}
	if err != nil {
		return Op{}, err
	}
	return op, op.validate()
}

func (o Op) validate() error {
	switch {
	case o.Kind != Delay && o.Kind != Slice && o.Kind != Rate && !o.placed() && !o.whole():
		return fmt.Errorf("kind %q: unknown", o.Kind)
	case o.N < 0 || o.D < 0:
		return fmt.Errorf("%s: want no negative numbers", o)
	case o.N == 0 && (o.Kind == Slice || o.Kind == Rate) || o.D == 0 && o.Kind == Delay:
		return fmt.Errorf("%s: want more than 0", o)
	}
	return nil
}

// placed reports whether the op happens at a byte.
func (o Op) placed() bool {
	return o.Kind == RST || o.Kind == FIN || o.Kind == Stall || o.Kind == Blackhole || o.Kind == Corrupt
}

// whole reports whether the op affects the connection before any byte.
func (o Op) whole() bool { return o.Kind == Refuse || o.Kind == NoRead }

// String returns the text form, without the direction.
func (o Op) String() string {
	switch {
	case o.whole():
		return o.Kind
	case o.placed():
		return fmt.Sprintf("%s@%d", o.Kind, o.N)
	case o.Kind == Delay:
		return fmt.Sprintf("%s=%v", o.Kind, o.D)
	case o.Kind == Slice && o.D > 0:
		return fmt.Sprintf("%s=%d,%v", o.Kind, o.N, o.D)
	}
	return fmt.Sprintf("%s=%d", o.Kind, o.N)
}

// String returns the text form that Parse reads.
func (s Script) String() string {
	var words []string
	for _, op := range s.Up {
		if op.whole() {
			words = append(words, op.String())
		} else {
			words = append(words, "up:"+op.String())
		}
	}
	for _, op := range s.Down {
		words = append(words, "down:"+op.String())
	}
	return strings.Join(words, " ")
}

// mustBeValid panics for a script that was written by hand and is wrong.
func (s Script) mustBeValid() {
	for _, op := range slices.Concat(s.Up, s.Down) {
		if err := op.validate(); err != nil {
			panic("BUG: faultnet script: " + err.Error())
		}
	}
}

func (s Script) whole() (Op, bool) {
	i := slices.IndexFunc(s.Up, Op.whole)
	if i < 0 {
		return Op{}, false
	}
	return s.Up[i], true
}

// placed returns the ops of one direction that happen at a byte, in their order.
func placed(ops []Op) []Op {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o Op) bool { return !o.placed() })
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.N, b.N) })
	return ops
}

func find(ops []Op, kind string) Op {
	if i := slices.IndexFunc(ops, func(o Op) bool { return o.Kind == kind }); i >= 0 {
		return ops[i]
	}
	return Op{}
}

// Random draws a script of one op, three times in four on the way down. Offsets are below 4 KiB,
// because the answers of short completions break there.
func Random(r *rand.Rand) Script {
	kinds := []string{Delay, Slice, Rate, RST, FIN, Stall, Blackhole, Corrupt, Refuse, NoRead}
	op := Op{Kind: kinds[r.IntN(len(kinds))]}
	switch op.Kind {
	case Delay:
		op.D = time.Duration(1+r.IntN(50)) * time.Millisecond
	case Slice:
		op.N, op.D = 1+r.Int64N(64), time.Duration(r.IntN(1000))*time.Microsecond
	case Rate:
		op.N = 4096 + r.Int64N(1<<20)
	case Refuse, NoRead:
		return Script{Up: []Op{op}}
	default:
		op.N = r.Int64N(4096)
	}
	if r.IntN(4) == 0 {
		return Script{Up: []Op{op}}
	}
	return Script{Down: []Op{op}}
}
