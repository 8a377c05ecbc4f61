package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// longestEvent is the most bytes of an event's line.
const longestEvent = 16 << 20

// events reads a stream's data lines. It skips comments, blank lines and other fields.
type events struct {
	in   *bufio.Reader
	long []byte // a line longer than the reader's buffer
}

// next is the data of the next event, valid until the next call. io.EOF means that the stream ended
// cleanly, between two lines.
func (e *events) next() ([]byte, error) {
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			return bytes.TrimPrefix(data, []byte(" ")), nil
		}
	}
}

func (e *events) line() ([]byte, error) {
	e.long = e.long[:0]
	for {
		part, err := e.in.ReadSlice('\n')
		switch {
		case err == nil && len(e.long) == 0:
			return bytes.TrimRight(part, "\r\n"), nil
		case err == nil:
			e.long = append(e.long, part...)
			return bytes.TrimRight(e.long, "\r\n"), nil
		case errors.Is(err, io.EOF) && len(part)+len(e.long) > 0:
			return nil, io.ErrUnexpectedEOF // in the middle of a line
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(e.long) > longestEvent:
			return nil, wrongf(FailEvent, "an event of more than %d bytes", longestEvent)
		}
		e.long = append(e.long, part...)
	}
}

// read reads an answer's events up to [DONE]. It calls alive after each event with a token: a server
// that only keeps sending other events stalls all the same.
func (a *Answer) read(s *events, limit int, alive func()) error {
	for seen := 0; ; {
		data, err := s.next()
		if errors.Is(err, io.EOF) {
			return wrongf(FailNoDone, "the stream ended without [DONE] after %d tokens' events", a.events())
		}
		if err != nil {
			return err
		}
		now := time.Now()
		if string(data) == "[DONE]" {
			return nil
		}
		if err := a.take(data, now); err != nil {
			return err
		}
		if n := a.events(); n > seen {
			seen = n
			alive()
		}
		if seen > eventsOf(limit) {
			return wrongf(FailUsage, "%d events with tokens; asked for at most %d tokens", seen, limit)
		}
	}
}

// eventsOf is the most events that an answer of that many tokens has. Few servers send more
// events than tokens (for the finish_reason, or around tool calls), and none sends twice as many.
func eventsOf(tokens int) int { return 2*tokens + 16 }

// take enters one event that came at now.
func (a *Answer) take(data []byte, now time.Time) error {
	if a.text == nil && plain(data) {
		a.tick(now)
		return nil
	}
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return wrongf(FailEvent, "%v: %.100q", err, data)
	}
	if text := e.failed(); text != "" {
		return wrongf(FailError, "%s", text)
	}
	if e.Usage != nil {
		a.usage = *e.Usage
		a.counted = true
	}
	if a.text != nil {
		a.text.WriteString(e.text())
	}
	if f := e.finish(); f != "" {
		a.Finish = f
	}
	if e.carriesToken() {
		a.tick(now)
	}
	return nil
}

// tick enters an event with a token.
func (a *Answer) tick(now time.Time) {
	if a.First.IsZero() {
		a.First = now
	} else {
		a.Gaps = append(a.Gaps, now.Sub(a.Last))
	}
	a.Last = now
}

// events is how many events with tokens came.
func (a *Answer) events() int {
	if a.First.IsZero() {
		return 0
	}
	return 1 + len(a.Gaps)
}

// judge finds what is wrong with an answer whose stream ended well. Without usage, or with impossible
// usage, there is no right count of tokens, so the answer counts as failed.
func (a *Answer) judge(limit int) error {
	switch {
	case a.First.IsZero():
		return wrongf(FailNoToken, "no event of the stream carried a token")
	case a.Finish == "":
		return wrongf(FailNoFinish, "no event of the stream had a finish_reason")
	case a.Finish == "abort" || a.Finish == "error":
		return wrongf(FailError, "finish_reason %q", a.Finish)
	case !a.counted:
		return wrongf(FailNoUsage, "no event of the stream had usage, though stream_options.include_usage asks for it")
	case a.usage.Output < 1 || a.usage.Prompt < 1 || a.usage.Output > limit:
		return wrongf(FailUsage, "usage has %d prompt and %d completion tokens; asked for at most %d", a.usage.Prompt, a.usage.Output, limit)
	}
	a.Prompt, a.Output = a.usage.Prompt, a.usage.Output
	if a.usage.Details != nil {
		a.Cached = a.usage.Details.Cached
	}
	return nil
}
