package proxy

import (
	"errors"
	"math/rand/v2"
	"time"

	"xpyd/kvparams"
	"xpyd/proxy/carry"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// denied says why the pool gave no lease.
func (d *decodeLeg) denied(err error) *fault.Error {
	c := d.c
	if gone := c.interrupted(); gone != nil {
		return gone
	}
	if c.overdue() {
		return fault.ErrDeadline()
	}
	if errors.Is(err, router.ErrBusy) && c.degraded && c.snap.Capped() {
		return fault.ErrShareSpent()
	}
	f := fault.Fault{Leg: fault.Decode, At: fault.AtPool, Cause: fault.NoneUp}
	if errors.Is(err, router.ErrBusy) {
		f.Cause = fault.Full
	}
	return f.Tell(fault.Classify(f).Code)
}

// degrade counts the request among those that should have had a prefill. If their share is spent,
// it releases its D and waits, as a request that finds a full pool does. why is the failure that
// led here.
func (p *prefillLeg) degrade(why *fault.Error) *fault.Error {
	c := p.c
	if c.snap.Degrade(&c.d.Lease) {
		c.degraded = true
		return nil
	}
	if c.s.cfg.DecodeOnly.MaxShare > 0 {
		c.d.Free()
		c.degraded = true
		err := c.d.reserve(nil)
		if err == nil {
			return nil
		}
		c.degraded = false
		if err.Code != fault.CodePrefillUnavailable {
			return err
		}
	}
	e := fault.ErrShareSpent()
	e.Log, e.RetryAfter = why.Why(), max(e.RetryAfter, why.RetryAfter)
	return e
}

// Full jitter spreads retries, so that requests that failed together do not all come back at once.
const (
	minBackoff = 25 * time.Millisecond
	maxBackoff = 250 * time.Millisecond
)

// retryPatience is how long a retry waits for its share of the budget. An engine that dies fails
// more requests at once than may be retried at once.
const retryPatience = 30 * time.Second

// mayRetry backs off and takes a share of the retry budget, which all completions have in common.
// The completion holds its share until a token comes or it ends. A leg that moved because its
// backend went down does not count as a retry. asked is how long the failed backend wants to be
// left alone. The request waits no longer than patience for its share, which is 0 if it can be served in another way at
// once.
func (c *completion) mayRetry(asked, patience time.Duration) bool {
	if c.deadly() {
		return false
	}
	if c.moved {
		c.moved = false // each move is exempt once
		c.s.router.Moved(c.s.live.Load())
		return true
	}
	pause := minBackoff + rand.N(maxBackoff-minBackoff)
	if asked > pause && c.snap.Pick(c.want(router.Decode, c.d.tried)) == nil {
		if asked > c.snap.Queue().Wait {
			return false // the client is told to come back after that time
		}
		pause = min(asked, time.Until(c.times.end))
	}
	for failed := time.Now(); ; {
		select {
		case <-time.After(pause):
		case <-c.ending():
			return false // the client has left or the process ends
		}
		if c.overdue() {
			return false
		}
		pause = minBackoff + rand.N(maxBackoff-minBackoff)
		c.endRetry() // each retry takes its own share
		if c.s.router.TakeRetry(c.s.live.Load(), time.Since(failed) > router.RetrySettle) {
			c.retrying = true
			return true
		}
		if time.Since(failed) > patience {
			if patience > 0 {
				c.s.metrics.RetryDenied()
			}
			return false
		}
	}
}

// place is where a request has its place among those that wait, which its head says. The head is gone once the answer begins.
type place struct {
	session, flow uint64
	priority      int
}

// dropHead lets go of the request's head, but for its place.
func (c reply) dropHead() {
	if c.carried.stream().Asks() {
		var w router.Want
		turn(&w, c.use.Account, c.conn, &c.ctx.Request.Header, c.carried.place.priority)
		c.carried.place = place{session: c.session(c.snap.AffinityHeaders()), flow: w.Flow, priority: w.Priority}
	}
	c.ctx = nil
}

// carried is what a completion keeps to go on with its stream if D fails.
type carried struct {
	carry.Stream
	place place        // its priority is that of the body until the head is gone
	not   carry.Reason // why it was not carried on when its D failed
	body  []byte       // of the continuation
}

// stream is what is kept of the stream, or nil if nothing is.
func (k *carried) stream() *carry.Stream {
	if k == nil {
		return nil
	}
	return &k.Stream
}

// reset leaves nothing but memory to the next stream.
func (k *carried) reset() {
	if k != nil {
		k.Stream.Reset()
		*k = carried{Stream: k.Stream}
	}
}

// carrier goes on with a stream whose D has failed: a new round, whose prompt are the ids of the prompt and those of the answer
// so far.
type carrier struct{ *completion }

// carriage is what has become of a stream whose D has failed.
type carriage uint8

const (
	notCarried carriage = iota
	carriedOn
	carriedToEnd // the client has all of it
)

// tellsIDs reports whether engines of the connector tell ids, and whether one can go on with the answer of another.
func tellsIDs(d kvparams.Dialect) bool {
	_, foreign := d.(kvparams.Foreign)
	return !foreign && !d.Concurrent()
}

// carry goes on with the stream after D has failed with f.
func (c carrier) carry(f fault.Fault, failed *leg.Failure) (how carriage) {
	if c.carried == nil {
		return notCarried
	}
	defer func() {
		if how != notCarried {
			c.s.metrics.Carried(int(carry.None))
		} else if c.interrupted() == nil && !c.overdue() {
			c.s.metrics.Carried(int(c.carried.not))
		} else {
			c.carried.not = carry.None
		}
	}()
	r, k := &c.d.relay, c.carried
	if k.not = carryable(f.Cause); k.not != carry.None {
		return notCarried
	}
	var left int
	if left, k.not = k.Next(c.d.Lease.Backend.Longest()); k.not != carry.None {
		return notCarried
	}
	b := c.d.Lease.Backend
	c.diedOf(b, c.d.X.Wrote)
	c.d.endAnswer(failed.Outcome, failed.Code)
	k.Cached(c.cachedTokens())
	if finished := r.finished >= r.choices; finished || left <= 0 {
		if r.lost = r.out.write(k.End(nil, finished, r.usage.Completion >= 0), time.Now()); r.lost != nil {
			c.leave()
			return notCarried
		}
		r.usage = k.Usage(kvparams.Usage{Completion: k.Tokens()})
		return carriedToEnd
	}
	if !k.AtSeam() {
		k.not = carry.Shape
		return notCarried
	}
	c.d.tried = append(c.d.tried, b)
	c.moved = failed.Moved
	if k.not = c.goOn(left); k.not != carry.None {
		r.foreign = false // what that round's D said of its failure is not sent
		return notCarried
	}
	return carriedOn
}

// carryable is None for what another engine may do better.
func carryable(of fault.Cause) carry.Reason {
	switch of {
	case fault.Broke, fault.Down, fault.Timeout, fault.Reported, fault.Unusable:
		return carry.None
	}
	return carry.Fault
}

// goOn has another round answer the rest of the stream, of at most left tokens.
func (c carrier) goOn(left int) (why carry.Reason) {
	k, first := c.carried, c.p.cached
	prompt := c.p.prompt
	defer func() {
		c.p.cached, c.p.prompt = first, prompt // the client's prompt
		c.state.set(stateCommitted)
	}()
	k.body = k.Body(k.body[:0], left)
	c.asking = c.s.idle.asking.Get().(*asking)
	c.req.Deny, c.req.FindMedia = nil, false
	if err := c.req.Parse(kvparams.Completions, k.body); err != nil || c.saltPrompt() != nil {
		return carry.Shape
	}
	c.target = kvparams.Completions.Path() + c.target[len(c.asks.Path()):]
	c.asks, c.snap = kvparams.Completions, c.s.router.Snapshot()
	c.tokens, _ = c.req.PromptTokens(1, 0)
	c.d.held.Lower(0)
	c.bill.text = 0 // the tokens of this prompt say nothing of the client's text
	k.Join()
	for range maxRounds {
		if !c.mayRetry(0, retryPatience) {
			return carry.Retries
		}
		c.round = round{n: c.round.n + 1}
		c.s.metrics.RoundRetried()
		f := c.tryRound()
		if f == nil {
			return carry.None
		}
		c.s.failedLog.Warn().Str("request_id", c.id).Str("leg_id", c.legID).Stringer("code", f.Code).Str("error", f.Told.Why()).
			Str("prefill", c.p.Lease.Backend.Name()).Str("decode", c.d.Lease.Backend.Name()).Msg("a stream was not carried on")
		if k.Why() == carry.Diverged { // no other engine can be held to a text that this one did not make
			return carry.Diverged
		}
		if f.Retry == fault.RetryNever || c.interrupted() != nil {
			break
		}
	}
	return carry.Round
}
