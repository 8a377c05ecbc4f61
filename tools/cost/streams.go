package cost

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/tools/completion"
)

// dialer connects to the proxy as its clients do.
type dialer func(ctx context.Context) (net.Conn, error)

// tokenLatency is the engines' time between two events of a stream.
const tokenLatency = 20 * time.Millisecond

// stalled is a request whose stream stops after a few events and stays open.
func stalled() completion.Call {
	return completion.Call{Chat: true, Stream: true, Prompt: "cost [[D:stall@3]]", Tokens: 8}
}

// steady is a request whose stream lasts for d.
func steady(d time.Duration) completion.Call {
	return completion.Call{Chat: true, Stream: true, Prompt: "cost", Tokens: int(d / tokenLatency)}
}

// short is a request that takes almost no time: one token at once, or two tokens and so one
// tokenLatency.
func short(tokens int) completion.Call {
	return completion.Call{Prompt: "The quick brown fox jumps over the lazy dog.", Tokens: tokens}
}

func raw(c completion.Call) []byte {
	body := c.Body()
	return append(c.Head(len(body), ""), body...)
}

// stream is an open stream whose events are counted and dropped.
type stream struct {
	conn   net.Conn
	events atomic.Int64
	ended  atomic.Bool
	begun  chan struct{} // closed at the second event
	done   chan struct{}
}

const openAtOnce = 64

// openStreams opens n streams and waits for the second event of each. It returns the open ones even
// if it fails. closeStreams ends them.
func openStreams(ctx context.Context, dial dialer, n int, c completion.Call) ([]*stream, error) {
	request := raw(c)
	streams := make([]*stream, n)
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, openAtOnce)
		errs  = make([]error, n)
	)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			streams[i], errs[i] = openStream(ctx, dial, request)
		})
	}
	wg.Wait()
	open := streams[:0]
	for _, s := range streams {
		if s != nil {
			open = append(open, s)
		}
	}
	return open, errors.Join(errs...)
}

func openStream(ctx context.Context, dial dialer, request []byte) (*stream, error) {
	conn, err := dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	s := &stream{conn: conn, begun: make(chan struct{}), done: make(chan struct{})}
	go s.count()
	if _, err := conn.Write(request); err != nil {
		return s, fmt.Errorf("open a stream: %w", err)
	}
	select {
	case <-s.begun:
		return s, nil
	case <-s.done:
		return s, errors.New("open a stream: the proxy closed it before its second event")
	case <-time.After(completion.Patience):
		return s, errors.New("open a stream: no second event")
	case <-ctx.Done():
		return s, ctx.Err()
	}
}

// count reads until the connection ends. The engines' texts have no empty lines except those
// between events.
func (s *stream) count() {
	defer close(s.done)
	defer s.ended.Store(true)
	buf := make([]byte, 4<<10)
	newline := false // the last byte read was a newline
	for {
		n, err := s.conn.Read(buf)
		events := bytes.Count(buf[:n], []byte("\n\n"))
		if n > 0 {
			if newline && buf[0] == '\n' {
				events++
			}
			newline = buf[n-1] == '\n'
		}
		before := s.events.Add(int64(events)) - int64(events)
		if before < 2 && before+int64(events) >= 2 {
			close(s.begun)
		}
		if err != nil {
			return
		}
	}
}

func closeStreams(streams []*stream) {
	for _, s := range streams {
		_ = s.conn.Close()
		<-s.done
	}
}

// completeFor sends completions over n kept connections for d, one after the other on each. It
// returns how many were answered.
func completeFor(ctx context.Context, dial dialer, n int, d time.Duration, c completion.Call) (int64, error) {
	request := raw(c)
	end := time.Now().Add(d)
	var (
		wg    sync.WaitGroup
		total atomic.Int64
		errs  = make([]error, n)
	)
	for i := range n {
		wg.Go(func() {
			conn, err := dial(ctx)
			if err != nil {
				errs[i] = fmt.Errorf("send completions: %w", err)
				return
			}
			defer func() { _ = conn.Close() }()
			in := bufio.NewReader(conn)
			for errs[i] == nil && time.Now().Before(end) && ctx.Err() == nil {
				if errs[i] = completeOnce(conn, in, request); errs[i] == nil {
					total.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return total.Load(), errors.Join(append(errs, ctx.Err())...)
}

func completeOnce(conn net.Conn, in *bufio.Reader, request []byte) error {
	if err := conn.SetDeadline(time.Now().Add(completion.Patience)); err != nil {
		return fmt.Errorf("send a completion: %w", err)
	}
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("send a completion: %w", err)
	}
	status, err := in.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("read an answer: %s", bytes.TrimSpace(status))
	}
	length := -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read an answer's head: %w", err)
		}
		if len(line) <= 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return fmt.Errorf("read an answer's head: %w", err)
			}
		}
	}
	if length <= 0 {
		return errors.New("read an answer: it has no length")
	}
	if _, err := io.CopyN(io.Discard, in, int64(length)); err != nil {
		return fmt.Errorf("read an answer's body: %w", err)
	}
	return nil
}
