package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/rs/zerolog"

	"xpyd/internal/zmtp"
	"xpyd/router/prefix"
)

const (
	maxMessage   = 16 << 20               // bytes of a batch
	replayWithin = 30 * time.Second       // until the first batch of a replay
	replayQuiet  = time.Second            // between two of them
	joins        = 500 * time.Millisecond // how long a subscription takes at most
	leastWait    = 500 * time.Millisecond // between two connects
	mostWait     = 30 * time.Second
	heardRoom    = 256 // prompts that wait to be heard
)

// source is the events of one engine, or of one of its ranks.
type source struct {
	wants  wanted                                     // what it was started for
	find   func(ctx context.Context) (address, error) // where the events are
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	log    zerolog.Logger
	news   caches
	most   atomic.Int64 // see index
	cancel context.CancelFunc
	done   chan struct{}
	heard  chan prefix.Heard

	mu    sync.Mutex // held while a batch is taken in, or a prompt
	index *index
	read  decoder

	// These belong to the goroutine that receives.
	at     address
	next   uint64 // the number of the next batch; 0 while none has come
	sum    uint64 // of the last batch, by which a restart of the engine is told from a lost connection
	synced bool   // batches before next may come once more
	said   bool   // the log has a line that the events do not come
}

// run listens until ctx ends.
func (s *source) run(ctx context.Context, guard func(func()) bool) {
	defer close(s.done)
	var hears sync.WaitGroup
	hears.Go(func() { again(ctx, func() { guard(func() { s.hear(ctx) }) }) })
	defer hears.Wait()
	again(ctx, func() {
		err := errors.New("a panic")
		guard(func() { err = s.listen(ctx) })
		if ctx.Err() == nil && !s.said {
			s.said = true
			s.log.Warn().Err(err).Msg("the engine's KV events do not come: its cache is estimated without them until they do")
		}
	})
}

// again calls try until ctx ends, after a wait that grows while it returns soon.
func again(ctx context.Context, try func()) {
	for wait := leastWait; ctx.Err() == nil; wait = min(2*wait, mostWait) {
		began := time.Now()
		try()
		if time.Since(began) > mostWait {
			wait = leastWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// locked calls f, which may panic, while nobody else uses the index.
func (s *source) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// hear takes in prompts until ctx ends. After a panic it begins without those that wait, one of which may be its cause.
func (s *source) hear(ctx context.Context) {
	s.locked(s.index.forget)
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

// link is a connection to a socket of an engine.
type link struct {
	*zmtp.Conn
	net  net.Conn
	stop func() bool
}

func (l link) end() {
	l.stop()
	_ = l.net.Close()
}

// open connects to a socket of the engine. The connection ends with ctx.
func (s *source) open(ctx context.Context, addr, own, peer string) (l link, err error) {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if l.net, err = s.dial(within, "tcp", addr); err != nil {
		return l, err
	}
	l.stop = context.AfterFunc(ctx, func() { _ = l.net.Close() })
	_ = l.net.SetDeadline(time.Now().Add(5 * time.Second))
	if l.Conn, err = zmtp.Open(l.net, own, peer, maxMessage); err == nil {
		err = l.net.SetDeadline(time.Time{})
	}
	if err != nil {
		l.end()
	}
	return l, err
}

// listen subscribes, asks for what it has missed, and takes in what comes, until the connection ends.
func (s *source) listen(ctx context.Context) (err error) {
	if s.at, err = s.find(ctx); err != nil {
		return err
	}
	l, err := s.open(ctx, s.at.events, zmtp.Sub, zmtp.Pub)
	if err != nil {
		return fmt.Errorf("subscribe at %s: %w", s.at.events, err)
	}
	defer l.end()
	if err := l.Subscribe(""); err != nil {
		return fmt.Errorf("subscribe at %s: %w", s.at.events, err)
	}
	if s.at.replay != "" {
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
		frames, err := l.Receive()
		if err != nil {
			return fmt.Errorf("receive from %s: %w", s.at.events, err)
		}
		seq, payload, ok := cutBatch(frames)
		if !ok {
			return fmt.Errorf("receive from %s: a message that is no batch of KV events", s.at.events)
		}
		if err := s.batch(ctx, seq, payload); err != nil {
			return err
		}
	}
}

// cutBatch cuts a message, whose last frames are the number of a batch and the batch. A topic stands before them, and in a
// replay an empty frame before that one. Releases of vLLM differ in whether a replay has the topic.
func cutBatch(frames [][]byte) (seq uint64, payload []byte, ok bool) {
	n := len(frames)
	if n < 3 || n > 4 || len(frames[n-2]) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], true
}

// batch takes in a batch that was published.
func (s *source) batch(ctx context.Context, seq uint64, payload []byte) error {
	switch {
	case s.next == 0 || seq == s.next:
	case seq < s.next && s.synced:
		return nil
	case seq < s.next:
		s.forget(true)
		return fmt.Errorf("the publisher at %s has begun anew", s.at.events)
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
	s.news.count(func(n *prefix.News) { n.Batches.Add(1) })
	if err != nil {
		s.news.count(func(n *prefix.News) { n.Missed.Add(1) })
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
	if s.at.replay == "" {
		s.forget(false)
		s.next = 0
		return nil
	}
	if s.next > 0 {
		last, restarted := s.next-1, true
		_, err := s.ask(ctx, last, func(seq uint64, payload []byte) bool {
			restarted = seq == last && xxhash.Sum64(payload) != s.sum
			return false
		})
		if err != nil {
			return err
		}
		if restarted {
			s.forget(true)
			s.next = 0
		}
	}
	return s.replay(ctx)
}

// fill asks for the batches from s.next up to seq. If there are no more of them, nothing is known of any block.
func (s *source) fill(ctx context.Context, seq uint64) error {
	if s.at.replay != "" {
		if err := s.replay(ctx); err != nil {
			return err
		}
	}
	if s.next < seq {
		s.miss(seq)
	}
	return nil
}

// miss notes that the batches before seq will not come.
func (s *source) miss(seq uint64) {
	missed := int64(min(seq-s.next, math.MaxInt32))
	s.news.count(func(n *prefix.News) { n.Missed.Add(missed) })
	s.forget(false)
	s.next = seq
}

// replay takes in the batches from s.next on that the engine still has. Its socket drops those that a slow network gives
// it no room for, so what is missing behind the first one is asked for again.
func (s *source) replay(ctx context.Context) error {
	for {
		from := s.next
		whole, err := s.ask(ctx, from, func(seq uint64, payload []byte) bool {
			switch {
			case seq < s.next:
				return true
			case seq > s.next && s.next > from:
				return false
			case seq > s.next && from > 0:
				s.miss(seq)
			}
			s.take(seq, payload)
			return true
		})
		if err != nil {
			return err
		}
		if whole || s.next == from {
			s.synced = true
			return nil
		}
	}
}

// ask calls each for the batches from a number on that the engine still has, until each returns false. whole says that it
// has not, and that the engine has said that there are no more. The payload is valid during the call.
func (s *source) ask(ctx context.Context, from uint64, each func(seq uint64, payload []byte) bool) (whole bool, err error) {
	l, err := s.open(ctx, s.at.replay, zmtp.Dealer, zmtp.Router)
	if err != nil {
		return false, fmt.Errorf("ask for a replay at %s: %w", s.at.replay, err)
	}
	defer l.end()
	if err := l.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return false, fmt.Errorf("ask for a replay at %s: %w", s.at.replay, err)
	}
	for within := replayWithin; ; within = replayQuiet {
		_ = l.net.SetReadDeadline(time.Now().Add(within))
		frames, err := l.Receive()
		seq, payload, ok := cutBatch(frames)
		switch {
		case within == replayQuiet && errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil // the last batches, and the word that they were the last, were dropped
		case err != nil:
			return false, fmt.Errorf("replay from %s: %w", s.at.replay, err)
		case !ok:
			return false, fmt.Errorf("replay from %s: a message that is no batch of KV events", s.at.replay)
		case seq == math.MaxUint64:
			return true, nil
		case !each(seq, payload):
			return false, nil
		}
	}
}
