package proxy

import (
	"time"

	"xpyd/proxy/encode"
	"xpyd/proxy/fault"
	"xpyd/router"
)

func (s *Server) newEncode() *encode.Stage {
	return encode.New(encode.Config{
		Router: s.router, Client: s.engines.Client, Suspect: s.engines.Suspect, Place: s.handoffs.Place, Live: s.live.Load, Guard: s.guard,
		Refused: func(status int) fault.Fault { return s.refused(fault.Prefill, status) },
		Queued:  func(d time.Duration) { s.metrics.Queued(int(router.Encode), d) }, Items: s.metrics.EncodeItems,
		Meter: s.metrics, MaxBroken: maxBroken, Log: s.failedLog,
	})
}

// encode has images, sounds and videos of the request encoded before the first round's legs.
func (c *completion) encode() *fault.Error {
	if c.round.n > 1 || c.round.again || c.req.Media() == 0 {
		return nil
	}
	job := encode.Job{
		Req: &c.req, Snap: c.snap, Want: router.Want{Role: router.Encode, Model: c.req.Model(), Alone: true}, ID: c.legID, Path: c.api.Path(), Target: c.target,
		Fields: c.fields, Trace: c.trace, Limit: c.s.bound().Timeouts.Encode, End: c.times.end, Ending: c.ending(),
	}
	turn(&job.Want, c.use.Account, c.conn, &c.ctx.Request.Header, c.req.Priority())
	run := c.s.encoder.Begin(job)
	if run == nil {
		return nil
	}
	c.state.set(statePrefilling)
	c.encoding.Store(run)
	if c.interrupted() == nil { // otherwise the cut may have come before the run was there
		run.Do()
	}
	c.reached = c.reached || run.Sent()
	if c.broken.Add(int32(run.Broken())); c.deadly() {
		return fault.Fault{Leg: fault.Prefill, At: fault.AtHead, Cause: fault.Broke}.Tell(fault.CodePrefillFailed)
	}
	return c.interrupted()
}
