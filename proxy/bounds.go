package proxy

import (
	"time"

	"xpyd/intake/upload"
)

// bounds are the timeouts and limits that a reload may change. Each wait and each check takes those of
// its moment. The others are those of the start, and are read from Server.cfg.
type bounds struct {
	Timeouts Timeouts
	Limits   Limits
	uploads  upload.Terms
}

// bound returns the bounds of the moment.
func (s *Server) bound() *bounds { return s.bounds.Load() }

// SetBounds changes the timeouts and limits that config.NeedsRestart does not name. It drops nothing
// that is held or counted.
func (s *Server) SetBounds(t Timeouts, l Limits) {
	s.bodies.Resize(l.BodyBudget, l.Body, l.ClientShare)
	s.held.Resize(l.AnswerBudget, l.ClientShare)
	s.clients.SetLimit(perAddress(s.keys, l.ClientInFlight))
	s.bounds.Store(&bounds{t, l, upload.Terms{Time: t.Body, Stall: t.BodyStall, Largest: l.Body, Bodies: s.bodies}})
}

// silence is how long all streams of an engine may stand still before it is ejected. Their deadlines
// are moved once a second.
func (s *Server) silence() time.Duration { return s.bound().Timeouts.StreamIdle + rearm }

// Lent returns how many bytes the bodies and answers of requests hold.
func (s *Server) Lent() int64 { return int64(s.bodies.InUse() + s.held.InUse()) }

// DropIdle leaves the idle buffers of bodies to the garbage collector. Those of streams and answers go by themselves.
func (s *Server) DropIdle() { s.bodies.DropIdle() }
