package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// step is a place on a leg's way where a relay may hold it.
type step uint8

const (
	stepRequest step = iota // whole at the relay, and the engine has seen nothing of it
	stepAnswer              // its first bytes have left the engine, and xpyd has seen none
	stepRelease             // a request of xpyd's own that gives the handle back
)

// station is one step of the legs of one client request, named by its X-Request-Id.
type station struct {
	step step
	id   string
}

// hold stops a leg at a station until let is called.
type hold struct {
	reached chan struct{} // closed when the leg has come
	open    chan struct{}
	once    sync.Once
}

// awaitAny waits until a leg has come to one of two holds, which may be the same.
func awaitAny(ctx context.Context, a, b *hold) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	select {
	case <-a.reached:
	case <-b.reached:
	case <-ctx.Done():
		return fmt.Errorf("no leg comes: %w", ctx.Err())
	}
	return nil
}

func (h *hold) let() { h.once.Do(func() { close(h.open) }) }

// relay stands between xpyd and one engine and passes bytes on unchanged. It knows which client
// request a leg belongs to, so that a check can hold just that one. It also keeps when each leg
// came by.
type relay struct {
	url, target string // http://127.0.0.1:…, and the engine's address
	closed      chan struct{}
	group       sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while shut
	holds    map[station]*hold
	seen     map[station][]time.Time
	conns    map[net.Conn]bool
	away     bool // connections are closed as they come, so the engine cannot be reached
	// handles counts the requests that carried each, by the name that P gave its own request, or the id that
	// xpyd made for both legs.
	handles map[string]int
}

func newRelay(e *engine) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a relay to %s: %w", e.name, err)
	}
	r := &relay{
		url: "http://" + l.Addr().String(), target: e.addr, listener: l, closed: make(chan struct{}),
		holds: map[station]*hold{}, seen: map[station][]time.Time{}, conns: map[net.Conn]bool{}, handles: map[string]int{},
	}
	r.group.Go(func() { r.accept(l) })
	return r, nil
}

// close lets all legs go on and ends all connections.
func (r *relay) close() {
	close(r.closed)
	r.shut()
	r.mu.Lock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.group.Wait()
}

// shut refuses new connections, like the port of an engine that has died.
func (r *relay) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
}

// reopen ends what shut began.
func (r *relay) reopen() error {
	l, err := net.Listen("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		return fmt.Errorf("listen again for a relay: %w", err)
	}
	r.mu.Lock()
	r.listener = l
	r.mu.Unlock()
	r.group.Go(func() { r.accept(l) })
	return nil
}

// hold stops the next leg that comes to the station.
func (r *relay) hold(s step, id string) *hold {
	h := &hold{reached: make(chan struct{}), open: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds[station{s, id}] = h
	return h
}

// times returns the moments at which legs came to the station.
func (r *relay) times(s step, id string) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[station{s, id}]
}

// setAway makes the engine look unreachable to new connections, or ends that.
func (r *relay) setAway(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func (r *relay) pass(s step, id string) {
	at := station{s, id}
	r.mu.Lock()
	r.seen[at] = append(r.seen[at], time.Now())
	h := r.holds[at]
	delete(r.holds, at)
	r.mu.Unlock()
	if h == nil {
		return
	}
	close(h.reached)
	select {
	case <-h.open:
	case <-r.closed:
	}
}

// noteHandle counts the handle in a request to a decode engine.
func (r *relay) noteHandle(body []byte) {
	var request struct {
		KV struct {
			RequestID  string `json:"remote_request_id"`
			TransferID string `json:"transfer_id"`
		} `json:"kv_transfer_params"`
	}
	if json.Unmarshal(body, &request) != nil {
		return
	}
	handle := cmp.Or(request.KV.RequestID, request.KV.TransferID)
	if handle == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handles[handle]++
}

// usedTwice returns the handles that went to decode engines more than once, and the number of all
// handles.
func usedTwice(relays ...*relay) (twice []string, all int) {
	total := map[string]int{}
	for _, r := range relays {
		r.mu.Lock()
		for id, n := range r.handles {
			total[id] += n
		}
		r.mu.Unlock()
	}
	for id, n := range total {
		if n > 1 {
			twice = append(twice, id)
		}
	}
	return twice, len(total)
}

func (r *relay) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		r.group.Go(func() { r.serve(c) })
	}
}

func (r *relay) serve(front net.Conn) {
	defer func() { _ = front.Close() }()
	if !r.keep(front) {
		return
	}
	defer r.drop(front)
	leg := &legAtRelay{relay: r, front: front}
	leg.requests()
	leg.hangUp()
	leg.answering.Wait()
}

func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) drop(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// legAtRelay is one connection of xpyd, on which legs follow one another.
type legAtRelay struct {
	relay     *relay
	front     net.Conn
	answering sync.WaitGroup

	mu      sync.Mutex
	back    net.Conn // to the engine; nil before the first request
	held    bool     // the relay has a request that the engine has not seen
	at      station  // of the leg that waits for its answer
	pending bool     // nothing of the answer has come
}

// requests passes whole requests on until xpyd closes the connection.
func (l *legAtRelay) requests() {
	var raw bytes.Buffer // what was read; xpyd sends no request before the last one is answered
	in := bufio.NewReader(io.TeeReader(l.front, &raw))
	for {
		raw.Reset()
		req, err := http.ReadRequest(in)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(req.Body)
		}
		if err != nil {
			if raw.Len() > 0 {
				_ = l.forward(raw.Bytes()) // a request that was cut off
			}
			return
		}
		s, id := ofLeg(req.Header.Get("X-Request-Id"))
		if s == stepRequest {
			l.relay.noteHandle(body)
		}
		l.mu.Lock()
		l.held, l.at, l.pending = true, station{stepAnswer, id}, s == stepRequest && id != ""
		l.mu.Unlock()
		if id != "" {
			l.relay.pass(s, id)
		}
		if err := l.forward(raw.Bytes()); err != nil {
			return
		}
	}
}

// forward writes to the engine, on a fresh connection if there is none.
func (l *legAtRelay) forward(request []byte) error {
	l.mu.Lock()
	l.held = false
	back := l.back
	l.mu.Unlock()
	if back == nil {
		var err error
		if back, err = net.Dial("tcp", l.relay.target); err != nil {
			return err
		}
		l.mu.Lock()
		l.back = back
		l.mu.Unlock()
		l.answering.Go(func() { l.answers(back) })
	}
	_, err := back.Write(request)
	return err
}

// hangUp tells the engine that xpyd has hung up. It half-closes, which the engine takes for a
// close, and an answer on its way still gets through.
func (l *legAtRelay) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back != nil {
		_ = l.back.(*net.TCPConn).CloseWrite()
	}
}

// answers passes on what the engine sends, until the engine closes the connection. That closes
// xpyd's connection too, unless the engine only closed an idle one. A request is held for longer
// than the 5 s for which uvicorn keeps such a connection.
func (l *legAtRelay) answers(back net.Conn) {
	l.copyAnswers(back)
	_ = back.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back = nil; !l.held {
		_ = l.front.Close()
	}
}

func (l *legAtRelay) copyAnswers(back io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := back.Read(buf)
		if n > 0 {
			l.mu.Lock()
			at, first := l.at, l.pending
			l.pending = false
			l.mu.Unlock()
			if first {
				l.relay.pass(at.step, at.id)
			}
			if _, err := l.front.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// ofLeg finds the client's id in a leg's id. xpyd adds a hyphen and eight hexadecimal digits, and
// one more word for a release.
func ofLeg(leg string) (s step, id string) {
	leg, release := strings.CutSuffix(leg, "-release")
	if release {
		s = stepRelease
	}
	if len(leg) < 9 {
		return s, ""
	}
	return s, leg[:len(leg)-9]
}
