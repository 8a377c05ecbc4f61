package goload

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Behaviour is what engines answer. Its functions are called by many goroutines.
type Behaviour struct {
	// Length reads the size of a body from the head of its request, which ends with its last line.
	// An error closes the connection.
	Length func(head []byte) (int, error)
	// Answer returns the whole answer of an engine, or a stream. engine counts from 0.
	Answer func(engine int, head []byte, size int) (whole []byte, stream *Stream)
}

// Stream is an answer that comes event by event, with one write for each.
type Stream struct {
	Head, Event, Tail []byte
	Stamp             func(event []byte) // puts the time into a copy of Event
	Events            int
	Interval          time.Duration // between two events; 0 for as fast as possible
	Hold              bool          // after its events the stream stays open and silent
}

// Engines listen on loopback, a port each.
type Engines struct {
	behaviour Behaviour
	listeners []net.Listener
	ctx       context.Context // ends the goroutines
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	began     time.Time
	paced     atomic.Int64 // streams with an interval so far
	scratch   sync.Pool    // of *[]byte, for bodies
}

const (
	headBuffer = 4 << 10
	bodyBuffer = 256 << 10
)

// Serve starts n engines.
func Serve(n int, b Behaviour) (*Engines, error) {
	e := &Engines{behaviour: b, began: time.Now()}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.scratch.New = func() any { b := make([]byte, bodyBuffer); return &b }
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			e.Close()
			return nil, fmt.Errorf("listen as an engine: %w", err)
		}
		e.listeners = append(e.listeners, l)
		e.wg.Go(func() { e.accept(l, i) })
	}
	return e, nil
}

// Addrs are host:port of all engines.
func (e *Engines) Addrs() []string {
	var all []string
	for _, l := range e.listeners {
		all = append(all, l.Addr().String())
	}
	return all
}

// Close ends all connections and waits for their goroutines.
func (e *Engines) Close() {
	e.cancel()
	for _, l := range e.listeners {
		_ = l.Close()
	}
	e.wg.Wait()
}

func (e *Engines) accept(l net.Listener, engine int) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as no descriptor left: others may close
			if sleep(e.ctx, 10*time.Millisecond) != nil {
				return
			}
			continue
		}
		e.wg.Go(func() {
			stop := context.AfterFunc(e.ctx, func() { _ = conn.Close() })
			defer stop()
			defer func() { _ = conn.Close() }()
			e.serve(conn, engine)
		})
	}
}

// serve answers the requests of a connection until it closes.
func (e *Engines) serve(conn net.Conn, engine int) {
	in := bufio.NewReaderSize(conn, headBuffer)
	var head []byte
	for {
		var err error
		if head, err = readHead(in, head[:0]); err != nil {
			return
		}
		size, err := e.behaviour.Length(head)
		if err != nil || e.discard(conn, in, size) != nil {
			return
		}
		whole, stream := e.behaviour.Answer(engine, head, size)
		if stream != nil {
			err = e.stream(conn, stream)
		} else {
			_, err = conn.Write(whole)
		}
		if err != nil {
			return
		}
	}
}

// readHead reads up to the empty line, which it leaves out.
func readHead(in *bufio.Reader, head []byte) ([]byte, error) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if err == nil && bytes.Equal(line, []byte("\r\n")) && bytes.HasSuffix(head, []byte("\n")) {
			return head, nil
		}
		head = append(head, line...)
	}
}

// discard reads a body of n bytes, and no more.
func (e *Engines) discard(conn net.Conn, in *bufio.Reader, n int) error {
	m, _ := in.Discard(min(n, in.Buffered()))
	n -= m
	if n == 0 {
		return nil
	}
	buf := e.scratch.Get().(*[]byte)
	defer e.scratch.Put(buf)
	for n > 0 {
		m, err := conn.Read((*buf)[:min(n, bodyBuffer)])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

func (e *Engines) stream(conn net.Conn, s *Stream) error {
	if _, err := conn.Write(s.Head); err != nil {
		return err
	}
	event := slices.Clone(s.Event)
	var turn *turns
	for i := range s.Events {
		switch {
		case s.Interval == 0 || i == 0: // a proxy may hold the head back until the first token
		case turn == nil:
			turn = e.join(s.Interval)
			defer turn.timer.Stop()
			fallthrough
		default:
			if err := turn.wait(e.ctx); err != nil {
				return err
			}
		}
		s.Stamp(event)
		if _, err := conn.Write(event); err != nil {
			return err
		}
	}
	if s.Hold {
		return nil
	}
	_, err := conn.Write(s.Tail)
	return err
}

// turns are when a stream's events are due.
type turns struct {
	interval time.Duration
	next     time.Time
	timer    *time.Timer
}

// join spreads streams evenly over their interval, to the millisecond. A stride without a common
// divisor with the usual lengths visits every place, and neighbours in time are far apart.
func (e *Engines) join(interval time.Duration) *turns {
	places := max(1, int64(interval/time.Millisecond))
	place := time.Duration((e.paced.Add(1)-1)*7%places) * time.Millisecond
	since := time.Since(e.began)
	next := since - since%interval + place
	if next <= since {
		next += interval
	}
	return &turns{interval: interval, next: e.began.Add(next), timer: time.NewTimer(next - since)}
}

// wait returns when the next event is due. One that is late is not left out.
func (t *turns) wait(ctx context.Context) error {
	select {
	case <-t.timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.next = t.next.Add(t.interval)
	t.timer.Reset(time.Until(t.next))
	return nil
}
