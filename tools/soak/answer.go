package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"xpyd/sim"
	"xpyd/tools/completion"
)

// wrong is an answer that no fault of engine or network excuses.
type wrong struct {
	invariant string
	what      string // the kind, the same for each case
	detail    string
}

func (w *wrong) Error() string { return w.what + ": " + w.detail }

func wrongf(invariant, what, detail string, args ...any) *wrong {
	return &wrong{invariant, what, fmt.Sprintf(detail, args...)}
}

// apiErr is OpenAI's error object. code is a text of the proxy's or a number of vLLM's.
type apiErr struct {
	Message, Type string
	Code          json.RawMessage
}

func (e *apiErr) code() string { return strings.Trim(string(e.Code), `"`) }

// event is what the check reads in an event of a stream or in a whole answer.
type event struct {
	ID    string
	Error *apiErr
	completion.Chunk
}

// reading is one streamed answer that is being read. It takes whole events.
type reading struct {
	call  completion.Call
	id    string // the client's id, which every id in the answer contains
	want  string
	at    int             // bytes of want that have come
	text  int             // events with text
	seen  func(time.Time) // called for each event except the terminal one
	rest  []byte          // the part of an event that is not whole
	fail  *apiErr
	done  bool
	ended bool // finish_reason
}

// feed takes bytes as they come.
func (r *reading) feed(b []byte) *wrong {
	r.rest = append(r.rest, b...)
	for {
		ev, rest, ok := bytes.Cut(r.rest, []byte("\n\n"))
		if !ok {
			return nil
		}
		if err := r.take(ev); err != nil {
			return err
		}
		r.rest = append(r.rest[:0], rest...)
	}
}

func (r *reading) take(raw []byte) *wrong {
	data, ok := bytes.CutPrefix(raw, []byte("data: "))
	switch {
	case !ok:
		return wrongf(invOutcomes, "a malformed event", "%.80q", raw)
	case r.done || r.fail != nil:
		return wrongf(invOutcomes, "an event after the last one", "done %v, error %v: %.80q", r.done, r.fail != nil, raw)
	case string(data) == "[DONE]":
		r.done = true
		return nil
	}
	var ev event
	if err := json.Unmarshal(data, &ev); err != nil {
		return wrongf(invOutcomes, "an event that is no JSON", "%.80q: %v", raw, err)
	}
	if ev.Error != nil {
		r.fail = ev.Error
		return nil
	}
	if !strings.Contains(ev.ID, r.id) {
		return wrongf(invBytes, "an event of another request", "id %q in the stream of %q", ev.ID, r.id)
	}
	text := ""
	for _, c := range ev.Choices {
		text += c.Text + c.Delta.Content
		r.ended = r.ended || c.Finish != nil
	}
	if !strings.HasPrefix(r.want[r.at:], text) {
		return wrongf(invBytes, "wrong text in a stream", "byte %d of %d: %.40q in place of %.40q", r.at, len(r.want), text, r.want[r.at:])
	}
	r.at += len(text)
	if text != "" {
		r.text++
	}
	r.seen(time.Now())
	return nil
}

// end judges the stream by how its body ended: whole, or broken off after one error event. With
// careless, the proxy may have cut the client off anywhere because of the client's own fault.
func (r *reading) end(err error, careless bool) (what string, bad *wrong) {
	whole := r.done && r.ended && r.at == len(r.want) && r.fail == nil && len(r.rest) == 0
	clean := errors.Is(err, io.EOF)
	switch {
	case clean && whole:
		return "complete", nil
	case clean:
		return "", wrongf(invOutcomes, "a clean end of a stream that is not whole", "%d of %d bytes, [DONE] %v, finish_reason %v, error event %s",
			r.at, len(r.want), r.done, r.ended, codeOf(r.fail))
	case timedOut(err):
		return "", wrongf(invOutcomes, "a stream that hangs", "%d of %d bytes: %v", r.at, len(r.want), err)
	case careless:
		return "cut off", nil
	case r.done:
		return "", wrongf(invOutcomes, "a stream broken off behind [DONE]", "%d of %d bytes: %v", r.at, len(r.want), err)
	case r.fail == nil:
		return "", wrongf(invOutcomes, "a stream broken off without an error event", "%d of %d bytes, %d bytes of an event: %v", r.at, len(r.want), len(r.rest), err)
	case len(r.rest) > 0:
		return "", wrongf(invBytes, "a part of an event at a stream's end", "%.80q", r.rest)
	case !r.atBorder():
		return "", wrongf(invBytes, "a stream broken off inside a token", "byte %d of %d", r.at, len(r.want))
	}
	return "broken off: " + r.fail.code(), nil
}

func codeOf(e *apiErr) string {
	if e == nil {
		return "none"
	}
	return e.code()
}

// atBorder reports whether what came ends where an engine's token ends.
func (r *reading) atBorder() bool {
	prompt := r.call.Prompt
	if r.call.Chat {
		prompt = sim.ChatPrompt(sim.Message{Role: "user", Content: prompt})
	}
	for n := range r.call.Tokens + 1 {
		if len(sim.Text(prompt, n)) == r.at {
			return true
		}
	}
	return false
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// refused judges an answer whose status is not 200. It must be an error object with a code, and
// have Retry-After if the client should come back.
func refused(resp *http.Response, body []byte) (what string, bad *wrong) {
	var answer struct{ Error *apiErr }
	if err := json.Unmarshal(body, &answer); err != nil || answer.Error == nil {
		return "", wrongf(invOutcomes, "an error answer that is no error object", "status %d: %.120q", resp.StatusCode, body)
	}
	what = fmt.Sprintf("%d %s", resp.StatusCode, answer.Error.code())
	if answer.Error.Message == "" || answer.Error.Type == "" || len(answer.Error.Code) == 0 {
		return what, wrongf(invOutcomes, "an error object with a member missing", "status %d: %.200q", resp.StatusCode, body)
	}
	busy := resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
	if busy && resp.Header.Get("Retry-After") == "" {
		return what, wrongf(invOutcomes, "a refusal without Retry-After", "%s", what)
	}
	return what, nil
}

// whole judges an answer of status 200 that is not streamed.
func (q *request) whole(body []byte) *wrong {
	var answer event
	if err := json.Unmarshal(body, &answer); err != nil {
		return wrongf(invOutcomes, "a whole answer that is no JSON", "%d bytes: %v", len(body), err)
	}
	if !strings.Contains(answer.ID, q.id) {
		return wrongf(invBytes, "an answer to another request", "id %q to %q", answer.ID, q.id)
	}
	if err := q.Check(body); err != nil {
		return wrongf(invBytes, "a wrong whole answer", "%v", err)
	}
	return nil
}
