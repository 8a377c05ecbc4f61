package bench

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Slow clients read some bytes at a time, or not at all for longer than timeouts.write_stall.
const (
	slowBytes = 8 << 10
	slowPause = 20 * time.Millisecond
	stuckFor  = soakWriteStall + time.Second
)

// readStream reads a stream as the client does, and judges it.
func (c *soakClient) readStream(q *request, resp *http.Response, sent time.Time) (string, error) {
	last := time.Time{}
	decode := ""
	r := &reading{call: q.call, id: q.id, want: q.want()}
	r.seen = func(now time.Time) {
		switch {
		case q.pace != paceSteady:
		case last.IsZero():
			first := now.Sub(sent) - soakPrefillTime(len(q.prompt))
			c.s.tally.observe(c.direct, func(l *latency) { l.first.observe(first) })
			last, decode = now, c.s.fleet.decodeOf(q.id)
		default:
			gap := now.Sub(last)
			c.s.tally.observe(c.direct, func(l *latency) { l.gaps.observe(gap) })
			if c.direct {
				c.s.tally.in(now, func(s *second) { s.late = max(s.late, gap-soakTokenLatency) })
			}
			if c.s.faults.beside(decode, last) {
				c.s.tally.gapBeside(gap)
			}
			last = now
		}
	}
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
	if next.manner == mannerHalf {
		next.manner = mannerClose
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
func (c *soakClient) draw(id string) *request {
	r := c.r
	q := &request{load: "stream", id: id, key: c.s.key, call: call{chat: r.IntN(2) == 0, stream: true, tokens: c.s.o.Events}}
	q.prompt = soakPrompt(r, id)
	switch n := r.IntN(1000); {
	case n < leaving:
		q.load, q.leaves = "leaves", true
		q.drawLeaving(r, c.s.o.Events)
	case n < leaving+slow:
		q.load, q.pace = "slow", paceSlow
		q.prompt = "[[text:big]] " + q.prompt
	case n < leaving+slow+stuck:
		q.load, q.pace = "stuck", paceStuck
		q.prompt = "[[text:big]] " + q.prompt
	}
	return q
}

// drawControl makes a plain stream.
func (c *soakClient) drawControl(id string) *request {
	q := &request{load: "control", id: id, key: c.s.key, call: call{chat: c.r.IntN(2) == 0, stream: true, tokens: c.s.o.Events}}
	q.prompt = soakPrompt(c.r, id)
	return q
}

// drawShort makes a request that is not streamed.
func (c *soakClient) drawShort(id string) *request {
	q := &request{load: "short", id: id, key: c.s.key, call: call{chat: c.r.IntN(2) == 0, tokens: 1 + c.r.IntN(6)}}
	q.prompt = soakPrompt(c.r, id)
	if c.r.IntN(1000) < leaving {
		q.load, q.leaves = "leaves", true
		q.drawLeaving(c.r, 0)
	}
	return q
}

// drawLeaving makes the client leave in the body, in the first moments (prefill, handoff, the
// decode's start) or in the stream.
func (q *request) drawLeaving(r *rand.Rand, events int) {
	q.manner = manner(r.IntN(3))
	switch n := r.IntN(8); {
	case n == 0:
		q.inBody, q.after = true, time.Duration(r.IntN(50))*time.Millisecond
	case n < 5 || events < 2:
		q.after = time.Duration(1+r.IntN(250)) * time.Millisecond
	default:
		q.events = 1 + r.IntN(events-1)
	}
}

// soakPrompt returns a prompt of 50 to 1,000 tokens that no other request has.
func soakPrompt(r *rand.Rand, id string) string {
	style := styles[r.IntN(len(styles))]
	return secret + strconv.FormatUint(r.Uint64(), 36) + " " + id + " " + style + strings.Repeat(" lorem ipsum dolor sit amet", 4+r.IntN(150))
}
