package soak

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"xpyd/tools/completion"
)

// Slow clients read some bytes at a time, or not at all for longer than timeouts.write_stall.
const (
	slowBytes = 8 << 10
	slowPause = 20 * time.Millisecond
	stuckFor  = writeStall + time.Second
)

// timer returns what notes the time of each event of q, which was sent at that moment.
func (c *client) timer(q *request, sent time.Time) func(now time.Time) {
	last := time.Time{}
	decode := ""
	return func(now time.Time) {
		switch {
		case q.pace != paceSteady:
		case last.IsZero():
			first := now.Sub(sent) - prefillTime(len(q.Prompt))
			c.s.tally.observe(c.direct, func(l *latency) { l.first.Observe(first) })
			last, decode = now, c.s.fleet.decodeOf(q.id)
		default:
			gap := now.Sub(last)
			c.s.tally.observe(c.direct, func(l *latency) { l.gaps.Observe(gap) })
			if c.direct {
				c.s.tally.in(now, func(s *second) { s.late = max(s.late, gap-tokenLatency) })
			}
			if c.s.faults.beside(decode, last) {
				c.s.tally.gapBeside(gap)
			}
			last = now
		}
	}
}

// readStream reads a stream as the client does, and judges it.
func (c *client) readStream(q *request, resp *http.Response, sent time.Time) (string, error) {
	r := &reading{call: q.Call, id: q.id, want: q.Want(), seen: c.timer(q, sent)}
	buf := make([]byte, slowBytes)
	stuck := q.pace == paceStuck
	for {
		n, err := resp.Body.Read(buf)
		if bad := r.feed(buf[:n]); bad != nil {
			return "", bad
		}
		if err != nil {
			what, bad := r.end(err, q.pace == paceStuck)
			if bad != nil {
				return what, bad
			}
			return what, nil
		}
		if q.leaves && r.text >= q.events {
			return c.leaveUnread(q.afterEvents())
		}
		switch {
		case stuck:
			stuck = false
			time.Sleep(stuckFor)
		case q.pace == paceSlow:
			time.Sleep(slowPause)
		}
	}
}

// afterEvents returns q for a client that leaves now. A half-closed client has read the head of its
// answer, so what follows is not judged as an answer.
func (q *request) afterEvents() *request {
	next := *q
	next.after = 0
	if next.manner == completion.MannerHalf {
		next.manner = completion.MannerClose
	}
	return &next
}

// These are the shares of the clients that are not plain ones, in 1/1000 of the requests.
const (
	leaving   = 100
	slow      = 20
	stuck     = 10
	malformed = 10
	forbidden = 5
)

// secret is in every prompt and nowhere else. No log line may contain it.
const secret = "quokka"

// draw makes the next request of a client that streams.
func (c *client) draw(id string) *request {
	r := c.r
	q := &request{load: "stream", id: id, key: c.s.key, Call: completion.Call{Chat: r.IntN(2) == 0, Stream: true, Tokens: c.s.o.Events}}
	q.Prompt = drawPrompt(r, id)
	switch n := r.IntN(1000); {
	case n < leaving:
		q.load, q.leaves = "leaves", true
		q.drawLeaving(r, c.s.o.Events)
	case n < leaving+slow:
		q.load, q.pace = "slow", paceSlow
		q.Prompt = "[[text:big]] " + q.Prompt
	case n < leaving+slow+stuck:
		q.load, q.pace = "stuck", paceStuck
		q.Prompt = "[[text:big]] " + q.Prompt
	}
	return q
}

// drawControl makes a plain stream.
func (c *client) drawControl(id string) *request {
	q := &request{load: "control", id: id, key: c.s.key, Call: completion.Call{Chat: c.r.IntN(2) == 0, Stream: true, Tokens: c.s.o.Events}}
	q.Prompt = drawPrompt(c.r, id)
	return q
}

// drawShort makes a request that is not streamed.
func (c *client) drawShort(id string) *request {
	q := &request{load: "short", id: id, key: c.s.key, Call: completion.Call{Chat: c.r.IntN(2) == 0, Tokens: 1 + c.r.IntN(6)}}
	q.Prompt = drawPrompt(c.r, id)
	if c.r.IntN(1000) < leaving {
		q.load, q.leaves = "leaves", true
		q.drawLeaving(c.r, 0)
	}
	return q
}

// drawLeaving makes the client leave in the body, in the first moments (prefill, handoff, the
// decode's start) or in the stream.
func (q *request) drawLeaving(r *rand.Rand, events int) {
	q.manner = completion.Manner(r.IntN(3))
	switch n := r.IntN(8); {
	case n == 0:
		q.inBody, q.after = true, time.Duration(r.IntN(50))*time.Millisecond
	case n < 5 || events < 2:
		q.after = time.Duration(1+r.IntN(250)) * time.Millisecond
	default:
		q.events = 1 + r.IntN(events-1)
	}
}

// drawPrompt returns a prompt of 50 to 1,000 tokens that no other request has.
func drawPrompt(r *rand.Rand, id string) string {
	style := completion.Style(r)
	return secret + strconv.FormatUint(r.Uint64(), 36) + " " + id + " " + style + strings.Repeat(" lorem ipsum dolor sit amet", 4+r.IntN(150))
}
