package desk

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// Stream sends server-sent events to all viewers. One goroutine makes them, only while there is a
// viewer.
type Stream struct {
	// First makes what a viewer gets at once, and Next what all viewers get at each tick. Both return
	// whole events. tick counts from the start of the goroutine.
	First func() []byte
	Next  func(tick int) []byte
	// Over ends the streams, so that viewers ask again: another process has the port.
	Over func() bool

	Every    time.Duration // between two ticks
	Patience time.Duration // for which a viewer may leave a write unread before it is dropped
	Viewers  int           // at most

	mu      sync.Mutex
	viewers map[chan []byte]struct{}
	stop    chan struct{} // ends the goroutine
}

var errFull = errors.New("too many viewers")

// join adds a viewer, and starts the goroutine for the first one.
func (s *Stream) join() (chan []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.viewers) >= s.Viewers {
		return nil, errFull
	}
	if s.viewers == nil {
		s.viewers = map[chan []byte]struct{}{}
	}
	if len(s.viewers) == 0 {
		s.stop = make(chan struct{})
		go s.run(s.stop)
	}
	v := make(chan []byte, 1)
	s.viewers[v] = struct{}{}
	return v, nil
}

// leave removes a viewer, and stops the goroutine with the last one.
func (s *Stream) leave(v chan []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.viewers, v); len(s.viewers) == 0 {
		close(s.stop)
	}
}

func (s *Stream) run(stop chan struct{}) {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	for tick := 1; ; tick++ {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		events := s.Next(tick)
		s.mu.Lock()
		for v := range s.viewers {
			select {
			case v <- events:
			default: // it has not taken the last ones; the next ones have all that these have
			}
		}
		s.mu.Unlock()
	}
}

// ServeHTTP sends events until the viewer leaves, or stops reading.
func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v, err := s.join()
	if err != nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method != http.MethodHead {
		s.send(w, r, v)
	}
}

// send writes events until the viewer is gone. A write that its reader leaves for too long fails.
func (s *Stream) send(w http.ResponseWriter, r *http.Request, v chan []byte) {
	out := http.NewResponseController(w)
	for events := s.First(); ; {
		if out.SetWriteDeadline(time.Now().Add(s.Patience)) != nil {
			return
		}
		if _, err := w.Write(events); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case events = <-v:
		}
		if s.Over() {
			return
		}
	}
}
