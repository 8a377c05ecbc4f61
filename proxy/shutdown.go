package proxy

import (
	"context"
	"fmt"
	"time"
)

// Drain makes the server unready, while it still serves whoever comes; each answer
// closes its connection.
func (s *Server) Drain() { s.draining.Store(true) }

// Retire leaves the port to another process, which accepts on the same socket: this one
// accepts no more, and each answer closes its connection. A connection that is idle may
// have a request on its way, so none is closed by Retire: it ends after its next
// answer, with its client, or after timeouts.idle. Retire returns when the last one has
// ended, when ctx ends or after timeouts.drain; requests that still run then are
// Shutdown's, which in the last case cuts them at once. Readiness stays as it was, for
// it is asked of the port. Serve must have been called.
func (s *Server) Retire(ctx context.Context) error {
	s.retiring.Store(true)
	l := s.accepting.Load()
	if err := l.Close(); err != nil {
		return fmt.Errorf("close the listener: %w", err)
	}
	over := time.NewTimer(s.cfg.Timeouts.Drain)
	defer over.Stop()
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	accepted := l.ended
	for accepted != nil || l.Open() > 0 {
		select {
		case <-accepted:
			accepted = nil
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-over.C:
			s.Cut()
			return nil
		}
	}
	return nil
}

// idleTick is how often a process that ends looks whether its last work is done.
const idleTick = 5 * time.Millisecond

// Cut ends the time that Shutdown gives to running completions.
func (s *Server) Cut() { s.cut() }

// Shutdown stops accepting, lets running completions end within timeouts.drain, gives
// the rest an error event, waits for the releases of their handles, and stops every
// goroutine that New started. Later calls wait for the first.
func (s *Server) Shutdown() error { return s.stopOnce() }

func (s *Server) shutdown() error {
	s.Drain()
	ctx, cancel := context.WithTimeout(s.drain, s.cfg.Timeouts.Drain)
	err := s.http.ShutdownWithContext(ctx)
	if err != nil && ctx.Err() != nil {
		why := "the drain time is over"
		if s.drain.Err() != nil {
			why = "told to cut the drain short"
		}
		s.log.Warn().Int64("cut", s.live.Load()).Msg(why + "; the requests left get an error")
		s.watch.StopAll()
		err = s.awaitIdle(5 * time.Second)
		s.awaitFlushed(time.Second)
	}
	cancel()
	s.cut()
	s.lingering.End()
	s.engines.Stop()
	s.handoffs.Close()
	s.watch.Close()
	s.engines.Close()
	return err
}

// awaitIdle waits until no completion runs any more.
func (s *Server) awaitIdle(d time.Duration) error {
	deadline := time.Now().Add(d)
	for s.live.Load() > 0 {
		if time.Now().After(deadline) {
			return fmt.Errorf("shutdown: %d requests did not end", s.live.Load())
		}
		time.Sleep(idleTick)
	}
	return nil
}

// awaitFlushed waits until the connections have ended: a completion is over a moment
// before the last bytes of its answer have left. Clients that read nothing are not waited
// for.
func (s *Server) awaitFlushed(d time.Duration) {
	for deadline := time.Now().Add(d); s.http.GetOpenConnectionsCount() > 0 && time.Now().Before(deadline); {
		time.Sleep(idleTick)
	}
}
