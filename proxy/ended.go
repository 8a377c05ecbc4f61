package proxy

import "time"

// Life is a completion that has ended. Moments count from Start, and a moment that never came is 0.
type Life struct {
	ID              string // the request's id
	API             string
	Path, Reason    string // empty if no backend was asked
	Outcome, Code   string // as in the metrics; without a failure Code is empty
	Prefill, Decode string // the URLs of the backends that were asked last
	Rounds          int
	// These are set for failures that are not the client's fault. Error is as in the log, and holds nothing of the request or the answer.
	Status            int
	Model, Key, Error string
	Events            int  // of the stream
	Streamed          bool // a first token was seen

	Start      time.Time
	Prefilling time.Duration // the last prefill leg began
	Prefilled  time.Duration // it ended
	Asked      time.Duration // the last decode leg began
	Handed     time.Duration // its request was written
	First      time.Duration // the first token went to the client
	End        time.Duration
}

// OnEnd makes the server call f with each completion that has ended. f may keep nothing of what it gets. Call OnEnd
// before Serve.
func (s *Server) OnEnd(f func(*Life)) { s.ended = f }

// life is what the status page shows of the completion.
func (c record) life(o outcome) Life {
	t := &c.times
	after := func(at time.Time) time.Duration {
		if at.IsZero() {
			return 0
		}
		return at.Sub(t.start)
	}
	l := Life{
		ID: c.id, API: c.api.String(), Outcome: o.String(), Rounds: c.round.n, Prefill: c.p.Lease.Backend.Name(), Decode: c.d.Lease.Backend.Name(),
		Events: c.d.relay.events, Streamed: c.d.streamed && !t.first.IsZero(), Start: t.start,
		Prefilled: after(t.prefilled), Handed: after(t.handed), First: after(t.first), End: time.Since(t.start),
	}
	if c.reached {
		l.Path, l.Reason = c.path.String(), c.reason.String()
	}
	if l.Prefilled > 0 {
		l.Prefilling = l.Prefilled - t.prefill
	}
	if l.Handed > 0 {
		l.Asked = after(c.d.Started)
	}
	if c.failure != nil {
		l.Code = c.failure.Code.String()
	}
	if o == outcomeError || o == outcomeBroken {
		const shown = 200 // bytes of a name that may be as long as a client likes
		l.Status, l.Model, l.Error = c.status(), string(c.model[:min(shown, len(c.model))]), c.failure.Why()
		if c.use.Account != nil {
			l.Key = c.use.Name
		}
	}
	return l
}
