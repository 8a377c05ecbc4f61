package versus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"xpyd/tools/versus/goload"
)

// These are the loads: clients and engines of the same kind.
const (
	loadEpoll      = "epoll"      // two threads that saturate the proxy and leave it the machine
	loadGoroutines = "goroutines" // one for each connection, which sleep between events
	loadBoth       = "both"
)

// loads are the kinds that a run measures, in the order of tables.
func (o *Options) loads() []string {
	if o.Load == "" || o.Load == loadBoth {
		return []string{loadEpoll, loadGoroutines}
	}
	return []string{o.Load}
}

func validLoad(name string) error {
	if !slices.Contains([]string{"", loadEpoll, loadGoroutines, loadBoth}, name) {
		return fmt.Errorf("load %q is none of epoll, goroutines, both", name)
	}
	return nil
}

// fleet is engines that serve.
type fleet struct {
	*book
	prefill, decode []string // host:port
	close           func() error
}

func startFleet(load string, s shape) (*fleet, error) {
	b := newBook(s.pace)
	if load == loadEpoll {
		e, err := startEngines(s.prefills, s.decodes, b)
		if err != nil {
			return nil, err
		}
		return &fleet{book: b, prefill: e.Prefill, decode: e.Decode, close: e.close}, nil
	}
	chunk, at := contentEvent()
	at += len(chunk) - eventSize - 2
	stream := &goload.Stream{
		Head: streamHead, Event: chunk, Tail: streamTail, Stamp: func(event []byte) { putStamp(event[at:], stamp()) },
		Events: s.pace.events, Interval: s.pace.interval, Hold: s.pace.hold,
	}
	e, err := goload.Serve(s.prefills+s.decodes, goload.Behaviour{
		Length: b.length,
		Answer: func(engine int, head []byte, size int) ([]byte, *goload.Stream) {
			r := decode
			if engine < s.prefills {
				r = prefill
			}
			whole, streams := b.answer(r, head, size)
			if streams {
				return nil, stream
			}
			return whole, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("start engines: %w", err)
	}
	addrs := e.Addrs()
	return &fleet{book: b, prefill: addrs[:s.prefills], decode: addrs[s.prefills:], close: func() error { e.Close(); return nil }}, nil
}

const (
	openLimit  = time.Minute      // in which all connections must have an answer that has begun
	quietLimit = 30 * time.Second // a proxy that says nothing for so long has lost a request
)

var errNothing = errors.New("no answer and no event came within the window")

// runLoad runs the load with clients of a kind. It calls sample at the start and at the end of the
// window. A proxy that gives no answer is not measured, because all of its figures would be good.
func runLoad(ctx context.Context, kind, addr string, l load, sample func(end bool) error) (seen counts, err error) {
	if kind == loadEpoll {
		seen, err = runEpoll(ctx, addr, l, sample)
	} else {
		seen, err = runGoroutines(ctx, addr, l, sample)
	}
	if err == nil && l.hold == 0 && seen.Requests+seen.Events == 0 {
		err = errNothing
	}
	return seen, err
}

// goReply is a reply for the other package.
type goReply struct{ *reply }

func (r goReply) Reset()                      { r.reset() }
func (r goReply) Feed(b []byte) (bool, error) { return r.feed(b) }
func (r goReply) Closing() bool               { return r.closing }

func runGoroutines(ctx context.Context, addr string, l load, sample func(end bool) error) (counts, error) {
	seen, err := goload.Run(ctx, goload.Load{
		Addr: addr, Conns: l.conns, Request: requestOf(l), Clock: stamp,
		NewReply: func(onEvent func(sent int64)) goload.Reply { return goReply{&reply{onEvent: onEvent, want: l.want}} },
		Pause:    l.pause, Warm: l.warm, Window: l.window, Delays: l.delays, Hold: l.hold,
		Opening: openLimit, Quiet: quietLimit,
	}, sample)
	return counts{Requests: seen.Requests, Events: seen.Events, Seconds: seen.Seconds, delays: seen.Delays, ttfts: seen.TTFTs}, err
}
