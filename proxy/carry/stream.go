// Package carry has what it takes to go on with a stream whose decode engine has failed: the ids of its prompt and of the
// tokens that the client has, and the form of its events. Only ids are exact: of 42 cuts with vLLM 0.32 and greedy sampling, ids
// gave the same rest at 42, and the text, tokenised anew, at 2.
//
// The ids come from D, which is asked for them (return_token_ids): the prompt's in its first event, a token's in its own. The scan
// of an event passes them anyway. They are copied, and null with spaces takes their place, as to move what else came in the same
// read would cost more. To keep raw events and to parse them only after a failure would copy as much and take several times the
// memory, and ids have to be hidden at once in any case.
//
// A continuation begins at the last token whose text the client has. With stop strings, an engine shows text later than its ids,
// by the longest of them less one character. There it begins so far back that the client has all text before it. What it makes
// again is compared with what the client has, and dropped. So the engine itself finds a stop string across the seam. But only
// greedy text is made again alike, so a sampled request with stop strings is not carried.
//
// Sampled requests without stop strings are carried: their text goes on as likely as before. With penalties of presence and
// frequency it would not, as these count the answer and not the prompt.
//
// It is off by default, because all of it has been tried with simulated engines only.
package carry

import (
	"sync/atomic"
	"unicode/utf8"

	"xpyd/kvparams"
)

// Config says which streams are carried on.
type Config struct {
	// Max is how often one stream is carried on. 0: never, and engines are asked for no ids.
	Max int `mapstructure:"max"`
	// Stream bounds what is kept of one stream, and Memory of all of them, in bytes.
	Stream int64 `mapstructure:"stream"`
	Memory int64 `mapstructure:"memory"`
}

// DefaultConfig carries none on.
func DefaultConfig() Config { return Config{Stream: 512 << 10, Memory: 64 << 20} }

// Room is the memory of all streams.
type Room struct {
	Config
	used atomic.Int64
}

// take charges n bytes more, if there is room for them.
func (r *Room) take(n int64) bool {
	if r.used.Add(n) <= r.Memory {
		return true
	}
	r.used.Add(-n)
	return false
}

// Used is how many bytes of streams are kept now.
func (r *Room) Used() int64 { return r.used.Load() }

// grain is the step in which streams charge what they keep, in bytes.
const grain = 4 << 10

// idBytes is about what the id of a token takes, and textBytes how many bytes of a prompt a token has at least.
const (
	idBytes   = 7
	textBytes = 3
)

// Stream is what is kept of one stream. The goroutine of its completion owns it.
type Stream struct {
	room *Room
	why  Reason // it cannot be carried on; None while it can
	on   bool   // engines are asked for ids, and the client does not see them
	req  kvparams.Onward
	held int64 // charged

	prompt, answer []byte // ids with commas between them
	asked          int    // ids in prompt
	all            point
	// whole is the last point up to which the client has all of the text. A token with a part of a character has none.
	whole point
	loose bool   // the client may have more of the text than up to whole
	mold  []byte // an event with a text, which may be empty
	// These are kept only with stop strings, for which engines show text later than its ids.
	text  []byte // that the client has
	chars int    // in text
	marks []mark

	times  int  // it was carried on
	joined bool // what comes now is the continuation's
	fresh  bool // nothing of the continuation has come so far
	form   kvparams.Mold
	turned []byte // the last event of it, see Turn
	due    []byte // text that the client has and the continuation makes once more
	before int    // tokens of the answer before this continuation
	cached int    // of the first prefill; below 0 if unknown
}

// point is a place in the answer.
type point struct {
	ids    int // bytes of answer before it
	tokens int
}

// mark is a place in the answer and how much of its text the client had then.
type mark struct {
	point
	chars int
}

// Begin says whether the stream may have to be carried on. It is called before its first leg.
func (s *Stream) Begin(room *Room, r *kvparams.Request, refused bool) {
	s.room = room
	var why kvparams.Uncarried
	s.req, why = kvparams.OnwardOf(r, s.req.Members[:0])
	switch s.why = Of(why); {
	case s.why != None:
	case refused:
		s.why = Refused
	case int64(r.PromptBytes()/textBytes*idBytes) > room.Stream:
		s.why = Size
	}
}

// Ask says whether the engine of the next leg is asked for ids. tells says that it is one that tells them. It begins the record anew: the client has nothing so far, or
// all of the record is in the request of a continuation.
func (s *Stream) Ask(tells bool) bool {
	if s == nil {
		return false
	}
	if !tells && s.why == None {
		s.why = Concurrent
	}
	s.on, s.fresh = s.why == None && s.times < s.room.Max, s.joined
	if s.times == 0 {
		s.forget()
	}
	return s.on
}

// Asks reports whether the events of the stream hold ids.
func (s *Stream) Asks() bool { return s != nil && s.on }

// Joined reports whether what comes now is a continuation.
func (s *Stream) Joined() bool { return s != nil && s.joined }

// MayCarry reports whether nothing so far keeps the stream from being carried on.
func (s *Stream) MayCarry() bool { return s != nil && s.why == None && s.times < s.room.Max }

// Times is how often it was carried on.
func (s *Stream) Times() int {
	if s == nil {
		return 0
	}
	return s.times
}

// Why is the reason why it cannot be carried on, so far.
func (s *Stream) Why() Reason { return s.why }

// Stop notes a reason, unless there is one, and gives the memory back.
func (s *Stream) Stop(why Reason) {
	if s.why == None {
		s.why = why
	}
	s.forget()
}

// forget drops what is kept.
func (s *Stream) forget() {
	if s.held > 0 {
		s.room.used.Add(-s.held)
		s.held = 0
	}
	s.prompt, s.answer, s.text, s.mold, s.marks = s.prompt[:0], s.answer[:0], s.text[:0], s.mold[:0], s.marks[:0]
	s.chars, s.all, s.whole, s.loose = 0, point{}, point{}, false
	if !s.joined { // otherwise the usage of the stream still needs it
		s.asked = 0
	}
}

// most is how large a buffer a Stream keeps for the next one, in bytes.
const most = 64 << 10

// Reset leaves nothing but buffers to the next stream.
func (s *Stream) Reset() {
	if s.room == nil {
		return
	}
	s.forget()
	n := Stream{req: kvparams.Onward{Members: s.req.Members[:0]}, mold: s.mold, marks: s.marks}
	for _, b := range [...]struct{ from, to *[]byte }{{&s.prompt, &n.prompt}, {&s.answer, &n.answer}, {&s.text, &n.text}} {
		if cap(*b.from) <= most {
			*b.to = (*b.from)[:0]
		}
	}
	*s = n
}

// Note keeps of the event of n bytes at at in buf what a continuation needs, and hides the ids in it. It returns buf and n anew.
// The event goes to the client.
func (s *Stream) Note(buf []byte, at, n int, ev kvparams.Event) ([]byte, int) {
	casts := false
	if s.why == None {
		raw := buf[at : at+n]
		s.note(raw, ev)
		shown, _ := ev.Shown(raw)
		casts = len(s.mold) == 0 && shown != nil && !ev.Names() && s.why == None
	}
	if buf, n = ev.HideIDs(buf, at, n); casts {
		s.mold = append(s.mold, buf[at:at+n]...)
	}
	return buf, n
}

func (s *Stream) note(raw []byte, ev kvparams.Event) {
	prompt, answer := ev.IDs(raw)
	if len(prompt) > 0 && !s.joined { // that of a continuation has the ids of the answer so far
		s.prompt = append(s.prompt[:0], prompt...)
		s.asked = count(prompt)
	}
	shown, other := ev.Shown(raw)
	switch {
	case other:
		s.Stop(Reasoning)
		return
	case len(shown) > 0 && len(answer) == 0:
		s.Stop(Shape)
		return
	}
	if len(answer) > 0 {
		s.add(answer)
	}
	if len(shown) > 0 {
		s.show(shown, count(answer) == 1)
	}
	if need := int64(len(s.prompt) + len(s.answer) + len(s.text) + len(s.marks)*markBytes); need > s.held {
		s.charge(need)
	}
}

const markBytes = 24

// add notes the ids of an event's tokens.
func (s *Stream) add(ids []byte) {
	if len(s.answer) > 0 {
		s.answer = append(s.answer, ',')
	}
	s.answer = append(s.answer, ids...)
	s.all = point{len(s.answer), s.all.tokens + count(ids)}
}

// show notes the text of an event. exact says that it is the text up to the last of its ids: an event of several may end with
// one that has a part of a character, whose text comes later.
func (s *Stream) show(raw []byte, exact bool) {
	if s.req.Held == 0 {
		if s.loose = !exact; exact {
			s.whole = s.all
		}
		return
	}
	had := len(s.text)
	s.text = kvparams.Unescaped(s.text, raw)
	s.chars += utf8.RuneCount(s.text[had:])
	if exact {
		s.marks = append(s.marks, mark{s.all, s.chars})
	}
}

// charge charges for need bytes.
func (s *Stream) charge(need int64) {
	more := (need - s.held + grain - 1) / grain * grain
	switch {
	case need > s.room.Stream:
		s.Stop(Size)
	case !s.room.take(more):
		s.Stop(Memory)
	default:
		s.held += more
	}
}

func count(ids []byte) int {
	n := 1
	for _, c := range ids {
		if c == ',' {
			n++
		}
	}
	return n
}
