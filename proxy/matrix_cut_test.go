package proxy_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/netio/tlsconf"
	"xpyd/netio/tlsconf/tlstest"
	"xpyd/proxy"
	"xpyd/router"
)

// The row T37 of the fault matrix: connections over TLS that end without close_notify. tools/faults names
// the tests of the row.

// severed is how an engine's answers break off: after so many bytes of plaintext, with FIN or RST, between
// two records or in the middle of one. TLS says no farewell.
type severed struct {
	at       int
	reset    bool
	inRecord bool
}

func (s severed) String() string {
	return fmt.Sprintf("%d reset %v, in a record %v", s.at, s.reset, s.inRecord)
}

// severer stands before an engine, with TLS if cfg is given. It passes everything while plan is nil.
type severer struct {
	ln     net.Listener
	cfg    *tls.Config
	target string
	plan   atomic.Pointer[severed]
	cuts   atomic.Int32 // made so far
	passed atomic.Int64 // bytes of answers to POSTs that were not cut
}

func newSeverer(t *testing.T, cfg *tls.Config, target string) *severer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	s := &severer{ln: ln, cfg: cfg, target: strings.TrimPrefix(target, "http://")}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(conn.(*net.TCPConn))
		}
	}()
	return s
}

func (s *severer) url() string {
	return map[bool]string{true: "https://", false: "http://"}[s.cfg != nil] + s.ln.Addr().String()
}

// halved writes half of each piece, so that a record arrives in part.
type halved struct {
	net.Conn
	on bool
}

func (h *halved) Write(p []byte) (int, error) {
	if h.on {
		_, err := h.Conn.Write(p[:len(p)/2])
		return len(p), err
	}
	return h.Conn.Write(p)
}

// serve passes a connection on. Only what answers a POST is cut, and no release.
func (s *severer) serve(under *net.TCPConn) {
	defer func() { _ = under.Close() }()
	half := &halved{Conn: under}
	var near net.Conn = half
	if s.cfg != nil {
		conn := tls.Server(half, s.cfg)
		if conn.Handshake() != nil {
			return
		}
		near = conn
	}
	far, err := net.Dial("tcp", s.target)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	var plan *severed
	completes := false
	first := make([]byte, 32<<10)
	n, err := near.Read(first)
	if request := first[:n]; err == nil && bytes.HasPrefix(request, []byte("POST ")) && !bytes.Contains(request, []byte("-release")) {
		plan, completes = s.plan.Load(), true
	}
	_, _ = far.Write(first[:n])
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close() // the proxy has left
	}()
	if plan == nil {
		if completes {
			_, _ = io.Copy(io.MultiWriter(s, near), far)
		} else {
			_, _ = io.Copy(near, far)
		}
		if s.cfg != nil {
			_ = near.Close() // with close_notify
		}
		return
	}
	if m, _ := io.CopyN(near, far, int64(plan.at)); m < int64(plan.at) {
		return
	}
	s.cuts.Add(1)
	if plan.inRecord {
		rest := make([]byte, 1<<10)
		half.on = true
		if n, _ := far.Read(rest); n > 0 {
			_, _ = near.Write(rest[:n])
		}
	}
	if plan.reset {
		_ = under.SetLinger(0)
	}
}

// Write counts what passes.
func (s *severer) Write(p []byte) (int, error) {
	s.passed.Add(int64(len(p)))
	return len(p), nil
}

// severedRig has a severer before the decode engine or, with prefill, before the prefill engine.
func severedRig(t *testing.T, version uint16, prefill bool, o rigOptions) (*rig, *severer) {
	t.Helper()
	ca := tlstest.NewCA(t)
	cfg := serverOf(t, ca.Local("engine"))
	cfg.MinVersion, cfg.MaxVersion = version, version
	if version == 0 {
		cfg = nil
	}
	var s *severer
	o.config = then(o.config, func(c *proxy.Config) {
		c.BackendTLS = tlsconf.Client{CA: ca.File}
		c.Timeouts.UpstreamIdle = time.Nanosecond
	})
	o.router = then(o.router, func(c *router.Config) {
		c.Health.EjectAfter = 0
		pool := &c.Decode
		if prefill {
			pool = &c.Prefill
		}
		s = newSeverer(t, cfg, (*pool)[0].URL)
		(*pool)[0].URL = s.url()
	})
	o.before = func(r *rig) { r.server.BreakAtOnce() }
	r := newRig(t, o)
	r.server.StopChecks() // a failed stream would have its engine checked at once
	return r, s
}

var tlsVersions = []uint16{tls.VersionTLS12, tls.VersionTLS13}

// manners are the ways to break off after n bytes.
func manners(n int) []severed {
	return []severed{{at: n}, {at: n, inRecord: true}, {at: n, reset: true}, {at: n, reset: true, inRecord: true}}
}

// D's stream ends without close_notify between two tokens, inside one or before its last chunk: the client
// gets the events before that, one error event and no clean end.
func TestStreamTruncatedOverTLS(t *testing.T) {
	together(t)
	for _, version := range tlsVersions {
		for first, c := range forty() {
			t.Run(tls.VersionName(version)+"/"+c.name(), func(t *testing.T) {
				r, s := severedRig(t, version, false, rigOptions{})
				l := layoutOf(t, r.decode[0], c, "cut")
				last := len(l.end) - 1
				made := int32(0)
				for _, i := range []int{first + 1, 20, last - 1, last} {
					for _, at := range []int{l.begin[i], (l.begin[i] + l.end[i]) / 2, l.end[i] - 1} {
						for _, cut := range manners(at) {
							s.plan.Store(&cut)
							a := r.rawCall(c, "cut")
							if made++; s.cuts.Load() != made {
								t.Fatalf("%v: not cut", cut)
							}
							least, most := l.before(at), l.before(at)
							if cut.reset {
								least = 1 // a reset may overtake what came before it
							}
							expectCut(t, l, a, least, most)
						}
					}
				}
				s.plan.Store(nil)
				expectWire(t, l, r.rawCall(c, "cut"))
				if n := r.metric(`xpyd_request_errors_total{code="decode_failed"}`); n != float64(made) {
					t.Errorf("%v errors counted, %d streams cut", n, made)
				}
				if n := r.metric("xpyd_requests_total{") - r.metric(`xpyd_requests_total{api="`+apiOf(c)+`",outcome="broken"}`); n != 1 {
					t.Errorf("%v requests that did not break off, want 1", n)
				}
				r.expectNothingHeld()
			})
		}
	}
}

func apiOf(c call) string { return map[bool]string{true: "chat", false: "completions"}[c.chat] }

// D's whole answer ends without close_notify before its last byte: 502 once each round has failed so, and
// nothing of the answer. Without the farewell alone it is whole, because its length says so.
func TestWholeAnswerTruncatedOverTLS(t *testing.T) {
	together(t)
	for _, version := range tlsVersions {
		for _, c := range []call{forms(prompt, 4)[0], forms(prompt, 4)[2]} {
			t.Run(tls.VersionName(version)+"/"+c.name(), func(t *testing.T) {
				r, s := severedRig(t, version, false, rigOptions{})
				r.expectWhole(c, r.call(c, "X-Request-Id", "cut")) // the next one finds the same tokens in the caches
				begun := s.passed.Load()
				r.expectWhole(c, r.call(c, "X-Request-Id", "cut"))
				size := int(s.passed.Load() - begun)
				head := len(readWire(t, r.decode[0].Addr(), raw(c, "cut-00000000"), func(wireAnswer) {}).head)
				failed := 0.0
				for _, at := range []int{1, head - 2, head, size - 1} {
					for _, cut := range manners(at) {
						s.plan.Store(&cut)
						a := r.call(c, "X-Request-Id", "cut")
						if a.err != nil || a.status != 502 || a.code() != "decode_failed" || a.header.Get("X-Request-Id") != "cut" || strings.Contains(a.body, "choices") {
							t.Fatalf("%v: %d %v %v\n%s", cut, a.status, a.err, a.header, a.body)
						}
						failed++
					}
				}
				s.plan.Store(&severed{at: size})
				r.expectWhole(c, r.call(c, "X-Request-Id", "cut"))
				if n := r.metric(`xpyd_request_errors_total{code="decode_failed"}`); n != failed {
					t.Errorf("%v errors counted, want %v", n, failed)
				}
				r.expectNothingHeld()
			})
		}
	}
}

// One cut answer is mended by another round, and the client sees nothing of it.
func TestTruncatedAnswerOverTLSIsMended(t *testing.T) {
	together(t)
	for _, c := range forms(prompt, 6) {
		t.Run(c.name(), func(t *testing.T) {
			r, s := severedRig(t, tls.VersionTLS13, false, rigOptions{decode: 2})
			s.plan.Store(&severed{at: 60, inRecord: true})
			r.until(func() bool { return s.cuts.Load() > 0 }, func(i int) {
				c.prompt = fmt.Sprint(i, prompt)
				r.expectWhole(c, r.call(c))
			})
			r.expectEachHandleOnce()
			r.expectNothingHeld()
		})
	}
}

// P's answer ends without close_notify: its handle is none, and D is not asked.
func TestPrefillTruncatedOverTLS(t *testing.T) {
	together(t)
	for _, version := range tlsVersions {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			r, s := severedRig(t, version, true, rigOptions{config: func(c *proxy.Config) { c.DecodeOnly.Enabled = false }})
			c := forms("abc", 2)[0]
			n := 0.0
			for _, at := range []int{1, 17, 100, 200, 300} {
				for _, cut := range manners(at) {
					s.plan.Store(&cut)
					a := r.call(c, "X-Request-Id", "cut")
					if a.err != nil || a.status != 502 || a.code() != "prefill_failed" || a.header.Get("X-Request-Id") != "cut" {
						t.Errorf("%v: %d %v %s", cut, a.status, a.err, a.body)
					}
					n++
				}
			}
			if got := len(r.decode[0].Requests()); got != 0 {
				t.Errorf("decode was asked %d times", got)
			}
			if got := r.metric(`xpyd_request_errors_total{code="prefill_failed"}`); got != n {
				t.Errorf("%v errors counted, want %v", got, n)
			}
			s.plan.Store(nil)
			r.expectWhole(c, r.call(c))
		})
	}
}

// The later APIs over TLS: a cut stream never has the end that its clients wait for, and a cut answer is 502.
func TestAPIsTruncatedOverTLS(t *testing.T) {
	together(t)
	for _, c := range apiCalls(prompt, 12) {
		t.Run(c.name(), func(t *testing.T) {
			r, s := severedRig(t, tls.VersionTLS13, false, rigOptions{})
			whole := r.post(c.path(), c.body())
			r.expectAPI(c, whole)
			ats := []int{150, 300, len(whole.body) / 2, len(whole.body)}
			for _, cut := range slices.Concat(manners(ats[0]), manners(ats[1]), manners(ats[2]), manners(ats[3])) {
				s.plan.Store(&cut)
				before := s.cuts.Load()
				a := r.post(c.path(), c.body())
				if s.cuts.Load() == before {
					t.Fatalf("%v: not cut", cut)
				}
				switch {
				case a.status == 502 && a.err == nil && a.code() == "decode_failed": // before the first token
				case c.stream && a.status == 200 && a.err != nil && !c.ends(a.body) && a.code() == "decode_failed":
				default:
					t.Errorf("%v: %d %v %s", cut, a.status, a.err, a.body)
				}
			}
			r.expectNothingHeld()
		})
	}
}
