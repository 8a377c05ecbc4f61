package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/rs/zerolog"

	"xpyd/internal/zmtp"
	"xpyd/router"
	"xpyd/router/prefix"
)

const (
	maxMessage   = 16 << 20 // bytes of a batch
	replayWithin = 30 * time.Second
	joins        = 500 * time.Millisecond // how long a subscription takes at most
	leastWait    = 500 * time.Millisecond // between two connects
	mostWait     = 30 * time.Second
	heardRoom    = 256 // prompts that wait to be heard
)

// source is the events of one engine, or of one of its ranks.
type source struct {
	events, replay string // host:port; replay may be empty
	dial           func(ctx context.Context, network, addr string) (net.Conn, error)
	log            zerolog.Logger
	news           router.News
	counts         *prefix.News
	most           atomic.Int64 // see index
	cancel         context.CancelFunc
	done           chan struct{}
	heard          chan prefix.Heard

	mu    sync.Mutex // held while a batch is taken in, or a prompt
	index *index
	read  decoder

	// These belong to the goroutine that receives.
	next   uint64 // the number of the next batch; 0 while none has come
	sum    uint64 // of the last batch, by which a restart of the engine is told from a lost connection
	synced bool   // batches before next may come once more
	said   bool   // the log has a line that the events do not come
}

// run listens until ctx ends.
func (s *source) run(ctx context.Context, guard func(func()) bool) {
	defer close(s.done)
	var hears sync.WaitGroup
	hears.Go(func() { guard(func() { s.hear(ctx) }) })
	defer hears.Wait()
	for wait := leastWait; ctx.Err() == nil; {
		began, err := time.Now(), errors.New("a panic")
		guard(func() { err = s.listen(ctx) })
		if ctx.Err() != nil {
			return
		}
		if !s.said {
			s.said = true
			s.log.Warn().Err(err).Msg("the engine's KV events do not come: its cache is estimated without them until they do")
		}
		if time.Since(began) > mostWait {
			wait = leastWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, mostWait)
	}
}

// locked calls f, which may panic, while nobody else uses the index.
func (s *source) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// hear takes in prompts until ctx ends.
func (s *source) hear(ctx context.Context) {
	var settle <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-s.heard:
			s.locked(func() { s.index.hear(h, time.Now()) })
			if settle == nil {
				settle = time.After(settles)
			}
		case now := <-settle:
			left := 0
			s.locked(func() { left = s.index.settle(now) })
			if settle = nil; left > 0 {
				settle = time.After(settles / 4)
			}
		}
	}
}

// open connects to a socket of the engine. The connection ends with ctx.
func (s *source) open(ctx context.Context, addr, own, peer string) (*zmtp.Conn, func(), error) {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := s.dial(within, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	end := func() {
		stop()
		_ = c.Close()
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	z, err := zmtp.Open(c, own, peer, maxMessage)
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return z, end, nil
}

// listen subscribes, asks for what it has missed, and takes in what comes, until the connection ends.
func (s *source) listen(ctx context.Context) error {
	z, end, err := s.open(ctx, s.events, zmtp.Sub, zmtp.Pub)
	if err != nil {
		return fmt.Errorf("subscribe at %s: %w", s.events, err)
	}
	defer end()
	if err := z.Subscribe(""); err != nil {
		return fmt.Errorf("subscribe at %s: %w", s.events, err)
	}
	if s.replay != "" {
		select { // a publisher takes a subscription in when it comes to it, and what it sends before is only replayed
		case <-ctx.Done():
		case <-time.After(joins):
		}
	}
	if err := s.resume(ctx); err != nil {
		return err
	}
	s.news.Listen(s.heard)
	defer s.news.Listen(nil)
	if s.said {
		s.said = false
		s.log.Info().Msg("the engine's KV events come again")
	}
	for {
		frames, err := z.Receive()
		if err != nil {
			return fmt.Errorf("receive from %s: %w", s.events, err)
		}
		if len(frames) != 3 || len(frames[1]) != 8 {
			return fmt.Errorf("receive from %s: a message that is no batch of KV events", s.events)
		}
		if err := s.batch(ctx, binary.BigEndian.Uint64(frames[1]), frames[2]); err != nil {
			return err
		}
	}
}

// batch takes in a batch that was published.
func (s *source) batch(ctx context.Context, seq uint64, payload []byte) error {
	switch {
	case s.next == 0 || seq == s.next:
	case seq < s.next && s.synced:
		return nil
	case seq < s.next:
		s.forget(true)
		return fmt.Errorf("the publisher at %s has begun anew", s.events)
	default:
		if err := s.fill(ctx, seq); err != nil {
			return err
		}
		if seq < s.next {
			return nil
		}
	}
	s.synced = false
	s.take(seq, payload)
	return nil
}

func (s *source) take(seq uint64, payload []byte) {
	now := time.Now()
	var err error
	s.locked(func() { err = s.read.read(payload, func(e *event) { s.index.take(e, now) }) })
	s.next, s.sum = seq+1, xxhash.Sum64(payload)
	s.counts.Batches.Add(1)
	if err != nil {
		s.counts.Missed.Add(1)
		s.forget(false)
	}
}

// forget makes the index empty. gone says that the engine's cache is empty too.
func (s *source) forget(gone bool) {
	s.locked(s.index.clear)
	if gone {
		s.news.Cleared()
	}
}

// resume brings the index up to date after a connect. It asks for the last batch once more: if that is another one, the
// engine has restarted.
func (s *source) resume(ctx context.Context) error {
	if s.replay == "" {
		s.forget(false)
		s.next = 0
		return nil
	}
	last := max(s.next, 1) - 1
	same := s.next == 0
	err := s.ask(ctx, last, func(seq uint64, payload []byte) {
		switch {
		case same:
			s.take(seq, payload)
		case seq == last:
			same = xxhash.Sum64(payload) == s.sum
		}
	})
	s.synced = true
	if err != nil || same {
		return err
	}
	s.forget(true)
	s.next = 0
	return s.resume(ctx)
}

// fill asks for the batches from s.next up to seq. If there are no more of them, nothing is known of any block.
func (s *source) fill(ctx context.Context, seq uint64) error {
	next := s.next
	if s.replay != "" {
		err := s.ask(ctx, next, func(seq uint64, payload []byte) {
			if seq != s.next {
				s.miss(seq)
			}
			s.take(seq, payload)
		})
		if err != nil {
			return err
		}
		s.synced = true
	}
	if s.next < seq {
		s.miss(seq)
	}
	return nil
}

// miss notes that the batches before seq will not come.
func (s *source) miss(seq uint64) {
	s.counts.Missed.Add(int64(min(seq-s.next, math.MaxInt32)))
	s.forget(false)
	s.next = seq
}

// ask calls each for the batches from a number on that the engine still has. The payload is valid during the call.
func (s *source) ask(ctx context.Context, from uint64, each func(seq uint64, payload []byte)) error {
	ctx, cancel := context.WithTimeout(ctx, replayWithin)
	defer cancel()
	z, end, err := s.open(ctx, s.replay, zmtp.Dealer, zmtp.Router)
	if err != nil {
		return fmt.Errorf("ask for a replay at %s: %w", s.replay, err)
	}
	defer end()
	if err := z.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return fmt.Errorf("ask for a replay at %s: %w", s.replay, err)
	}
	for {
		frames, err := z.Receive()
		switch {
		case err != nil:
			return fmt.Errorf("replay from %s: %w", s.replay, err)
		case len(frames) != 3 || len(frames[1]) != 8:
			return fmt.Errorf("replay from %s: a message that is no batch of KV events", s.replay)
		}
		seq := binary.BigEndian.Uint64(frames[1])
		if seq == math.MaxUint64 {
			return nil
		}
		each(seq, frames[2])
	}
}
