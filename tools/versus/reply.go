package versus

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// reply takes an answer apart as its bytes come, and does not keep them. One reply serves all
// answers of a connection, one after the other.
type reply struct {
	onEvent func(sent int64) // a content event, with its stamp
	want    int              // content events of a whole stream

	state   replyState
	line    []byte // of the head, or the framing of a chunk, until it is whole
	left    int    // bytes of the body, or of the chunk, that are to come
	part    []byte // of an event or an answer, until it is whole
	events  int    // content events
	last    int64  // stamp of the last of them
	done    bool   // [DONE] has come
	stream  bool
	closing bool // the server will close the connection
}

type replyState uint8

const (
	inHead replyState = iota
	inBody
	inSize
	inChunk
	inChunkEnd
	inTrailer
)

// These errors say why an answer is not what an engine has sent.
var (
	errStatus  = errors.New("status other than 200")
	errFraming = errors.New("broken framing")
	errOrder   = errors.New("events out of order")
	errNoDone  = errors.New("a stream ended without [DONE]")
	errEvents  = errors.New("a stream with another number of events")
	errText    = errors.New("not the text that the engine has sent")
)

func (r *reply) reset() {
	*r = reply{onEvent: r.onEvent, want: r.want, line: r.line[:0], part: r.part[:0]}
}

// feed takes the next bytes. whole is true if the answer has ended with them. No bytes may follow.
func (r *reply) feed(b []byte) (whole bool, err error) {
	for len(b) > 0 && err == nil {
		if whole {
			return false, fmt.Errorf("%w: %d bytes behind the end", errFraming, len(b))
		}
		switch r.state {
		case inHead:
			b, whole, err = r.feedHead(b)
		case inBody, inChunk:
			n := min(r.left, len(b))
			err = r.feedBody(b[:n])
			r.left -= n
			b = b[n:]
			if r.left == 0 {
				whole = r.state == inBody
				r.state = inChunkEnd
			}
		default:
			b, whole, err = r.feedFraming(b)
		}
	}
	if whole && err == nil {
		err = r.check()
	}
	return whole, err
}

// check looks at a whole answer.
func (r *reply) check() error {
	switch {
	case !r.stream && !bytes.Contains(r.part, wholeText):
		return errText
	case r.stream && !r.done:
		return errNoDone
	case r.stream && r.events != r.want:
		return fmt.Errorf("%w: %d of %d", errEvents, r.events, r.want)
	}
	return nil
}

func (r *reply) feedHead(b []byte) (rest []byte, whole bool, err error) {
	before := len(r.line)
	r.line = append(r.line, b...)
	end := bytes.Index(r.line, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, false, nil
	}
	rest = b[end+4-before:]
	head := r.line[:end+2]
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		return nil, false, fmt.Errorf("%w: %.60q", errStatus, head)
	}
	if v, ok := field(head, "connection"); ok {
		r.closing = bytes.EqualFold(v, []byte("close"))
	}
	if v, ok := field(head, "content-length"); ok {
		r.state = inBody
		if r.left, err = strconv.Atoi(string(v)); err != nil {
			err = fmt.Errorf("%w: Content-Length %q", errFraming, v)
		}
		whole = r.left == 0
	} else {
		r.state, r.stream = inSize, true
	}
	r.line = r.line[:0]
	return rest, whole, err
}

// feedFraming reads a line: the size of a chunk, the end of one, or of the answer.
func (r *reply) feedFraming(b []byte) (rest []byte, whole bool, err error) {
	n := bytes.IndexByte(b, '\n')
	if n < 0 {
		r.line = append(r.line, b...)
		return nil, false, nil
	}
	line := b[:n]
	if len(r.line) > 0 {
		r.line = append(r.line, line...)
		line = r.line
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	switch r.state {
	case inSize:
		size, err := strconv.ParseUint(string(line), 16, 31)
		if err != nil {
			return nil, false, fmt.Errorf("%w: chunk of size %.20q", errFraming, line)
		}
		r.left, r.state = int(size), inChunk
		if size == 0 {
			r.state = inTrailer
		}
	case inChunkEnd:
		r.state = inSize
		if len(line) > 0 {
			err = errFraming
		}
	case inTrailer:
		whole = len(line) == 0
	}
	r.line = r.line[:0]
	return b[n+1:], whole, err
}

// feedBody cuts a stream into events.
func (r *reply) feedBody(b []byte) error {
	if !r.stream {
		r.part = append(r.part, b...)
		return nil
	}
	if len(r.part) > 0 {
		r.part = append(r.part, b...)
		b = r.part
	}
	for {
		n := bytes.Index(b, []byte("\n\n"))
		if n < 0 {
			r.part = append(r.part[:0], b...) // may overlap: append moves
			return nil
		}
		if err := r.event(b[:n]); err != nil {
			return err
		}
		b = b[n+2:]
	}
}

func (r *reply) event(ev []byte) error {
	i := bytes.Index(ev, []byte(stampMark))
	if i < 0 {
		r.done = r.done || string(ev) == "data: [DONE]"
		return nil
	}
	sent, ok := readStamp(ev[i+len(stampMark):])
	if !ok || sent < r.last {
		return errOrder
	}
	r.last = sent
	r.events++
	r.onEvent(sent)
	return nil
}
