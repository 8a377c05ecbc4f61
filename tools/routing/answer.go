package routing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"xpyd/tools/sse"
)

// answer is the result of a request.
type answer struct {
	first, last time.Time // events with text
	tokens      int       // of the answer, as the usage event says
	cached      int       // of the prompt, that an engine had in its cache: likewise
	path        string    // X-Xpyd-Path, if a proxy says so
	sent        time.Time
	err         error
}

var (
	errorMark    = []byte(`{"error"`)
	contentMark  = []byte(`"content":"`)
	contentEmpty = []byte(`"content":""`)
	foreignText  = []byte(" WRONG-KV-")
	tokensMark   = []byte(`"completion_tokens":`)
	cachedMark   = []byte(`"cached_tokens":`)
)

// readStream reads the events of a chat completion to their end.
func (a *answer) readStream(body io.Reader, want int) error {
	in := sse.NewReader(body)
	done := false
	for !done {
		data, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the stream ended without [DONE]")
		case err != nil:
			return err
		case bytes.HasPrefix(data, errorMark):
			return fmt.Errorf("the stream holds an error: %.200s", data)
		case bytes.Contains(data, foreignText):
			return errors.New("the answer was made from another prompt's KV")
		case sse.Done(data):
			done = true
		default:
			a.event(data)
		}
	}
	if a.first.IsZero() || a.tokens != want {
		return fmt.Errorf("the answer has %d tokens, not %d", a.tokens, want)
	}
	return nil
}

func (a *answer) event(line []byte) {
	if bytes.Contains(line, contentMark) && !bytes.Contains(line, contentEmpty) {
		a.last = time.Now()
		if a.first.IsZero() {
			a.first = a.last
		}
	}
	if n, ok := numberAfter(line, tokensMark); ok {
		a.tokens = n
	}
	if n, ok := numberAfter(line, cachedMark); ok {
		a.cached = n
	}
}

// numberAfter reads the digits that follow mark.
func numberAfter(line, mark []byte) (n int, ok bool) {
	_, rest, ok := bytes.Cut(line, mark)
	if !ok {
		return 0, false
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	n, err := strconv.Atoi(string(rest[:digits]))
	return n, err == nil
}
