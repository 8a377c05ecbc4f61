package proxy

import (
	"sync"

	"github.com/valyala/fasthttp"

	"xpyd/router"
)

// aloneLines bounds the lines a second about requests that are decoded without a prefill: in
// an outage all are, and the metrics count them.
const aloneLines = 10

// outage is whether decode engines stand in for a prefill pool of which no engine is up. Its
// begin and its end are said once each.
type outage struct {
	mu sync.Mutex
	on bool
}

// outageNow reports whether decode engines stand in for the whole prefill pool.
func (s *Server) outageNow() bool { return s.standsIn() && s.router.Snapshot().Outage() }

// standsIn: a decode engine may compute a prompt that should have had a prefill.
func (s *Server) standsIn() bool { return s.decodeAlone() && s.cfg.DecodeOnly.MaxShare > 0 }

// lookForOutage is called when a backend's state, or the pools, have changed.
func (s *Server) lookForOutage() {
	o := &s.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	now := s.outageNow()
	switch {
	case now == o.on:
		return
	case now:
		s.log.Error().Msg("no prefill engine is up: decode engines compute the prompts")
	default:
		s.log.Warn().Msg("the outage of the prefill pool is over")
	}
	o.on = now
}

// degrade counts the request among those that should have had a prefill. Where they have
// all of their share it lets its D go and waits, as whoever finds a pool full does.
func (c *completion) degrade(why *apiError) *apiError {
	if c.snap.Degrade(&c.d.lease) {
		c.degraded = true
		return nil
	}
	if c.s.cfg.DecodeOnly.MaxShare > 0 {
		c.d.lease.Release(router.ClientGone)
		c.degraded = true
		err := c.reserveDecode()
		if err == nil {
			return nil
		}
		c.degraded = false
		if err.Code != codePrefillUnavailable {
			return err
		}
	}
	e := shareSpent()
	e.cause, e.RetryAfter = why.why(), max(e.RetryAfter, why.RetryAfter)
	return e
}

func shareSpent() *apiError {
	e := newError(fasthttp.StatusServiceUnavailable, codePrefillUnavailable, "", "no prefill can be had, and decode_only.max_share is spent").retryAfter(1)
	e.blameless = true
	return e
}
