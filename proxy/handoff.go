package proxy

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/router"
)

type handleState uint8

const (
	handleNone handleState = iota
	handleIssued
	handleSent // some D may have seen it: never sent to another one
	handleEnded
)

// handoff is the single-use fence around a handle. P frees the blocks once D has read
// them and does not check a second read, which would return another prompt's answer
// with status 200. issued → sent → ended, or issued → ended; only a dial failure
// leads back from sent to issued.
type handoff struct {
	s      *Server
	handle kvparams.Handle // aliases the prefill leg's buffer until ended
	from   *router.Backend
	issued time.Time
	state  handleState
}

func (h *handoff) issue(handle kvparams.Handle, from *router.Backend) {
	if h.state != handleNone && h.state != handleEnded {
		panic("BUG: handle issued over a live one")
	}
	h.handle, h.from, h.issued, h.state = handle, from, time.Now(), handleIssued
	from.HandleIssued()
	h.s.metrics.Handle(endIssued)
	h.s.ledger.pin(handle.Blocks)
}

func (h *handoff) live() bool { return h.state == handleIssued || h.state == handleSent }

func (h *handoff) age() time.Duration { return time.Since(h.issued) }

// fresh reports whether D would still find the blocks.
func (h *handoff) fresh() bool { return h.age() < h.s.cfg.KV.Lease-h.s.cfg.KV.LeaseMargin }

// send hands the handle out for one request to D.
func (h *handoff) send() kvparams.Handle {
	if h.state != handleIssued {
		panic("BUG: handle sent twice")
	}
	h.state = handleSent
	return h.handle
}

// unsent takes a send back: no connection came about, so no D has seen the handle.
func (h *handoff) unsent() {
	if h.state == handleSent {
		h.state = handleIssued
	}
}

// end closes the books on the handle.
func (h *handoff) end(how handleEnd) {
	if !h.live() {
		return
	}
	h.state = handleEnded
	h.from.HandleEnded()
	h.s.metrics.Handle(how)
	h.s.ledger.unpin(h.handle.Blocks)
}

// lose ends a handle whose blocks wait for the lease.
func (h *handoff) lose(why orphan) {
	if h.live() {
		h.end(why.end())
		h.s.strand(h.handle.Blocks, h.issued, why)
	}
}

// strand counts blocks that only the end of P's lease will free.
func (s *Server) strand(blocks int, issued time.Time, why orphan) {
	s.metrics.Orphan(why)
	s.ledger.strand(blocks, issued.Add(s.cfg.KV.Lease))
}

// transfer passes the duty to end the handle on to a release.
func (h *handoff) transfer() {
	if !h.live() {
		panic("BUG: release of a handle that has ended")
	}
	h.state = handleEnded
	h.from.HandleEnded()
}

// abandon gives a live handle back in the background: the client is gone, or no
// decode will come. avoid is a D that has just failed; nil if there is none.
func (c *completion) abandon(avoid *router.Backend) {
	if !c.handoff.live() {
		return
	}
	a := abandoned{h: &c.handoff, legID: c.legID, api: c.api, fields: c.fields, req: &c.req, snap: c.snap, avoid: avoid, broken: int(c.broken.Load())}
	if avoid == nil && c.d.lease.Held() {
		a.prefer = c.d.lease.Backend
	}
	c.s.releases.start(a)
}

// ledger counts the blocks that handles name.
type ledger struct {
	mu   sync.Mutex
	held int
	lost []lostBlocks
}

type lostBlocks struct {
	blocks int
	until  time.Time
}

func (l *ledger) pin(n int)   { l.mu.Lock(); l.held += n; l.mu.Unlock() }
func (l *ledger) unpin(n int) { l.mu.Lock(); l.held -= n; l.mu.Unlock() }

func (l *ledger) strand(n int, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(time.Now())
	l.lost = append(l.lost, lostBlocks{n, until})
}

// forget drops what the leases have freed by now.
func (l *ledger) forget(now time.Time) {
	keep := l.lost[:0]
	for _, e := range l.lost {
		if e.until.After(now) {
			keep = append(keep, e)
		}
	}
	l.lost = keep
}

func (l *ledger) pinned() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.held)
}

func (l *ledger) stranded() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(time.Now())
	n := 0
	for _, e := range l.lost {
		n += e.blocks
	}
	return float64(n)
}

// hostAllowed checks a handle's host against kv.allow_hosts.
func (s *Server) hostAllowed(host []byte) bool {
	if len(s.cfg.KV.AllowHosts) == 0 {
		return true
	}
	for _, h := range s.cfg.KV.AllowHosts {
		if strings.EqualFold(h, string(host)) {
			return true
		}
	}
	return false
}

// handleFor is the handle as decode backend d gets it: byte for byte P's, but for a
// loopback host that d could not reach, which is counted, logged once, and replaced
// where the configuration says so.
func (h *handoff) handleFor(d *router.Backend, handle kvparams.Handle) kvparams.Handle {
	s := h.s
	if !loopback(handle.RemoteHost) || hostOf(h.from) == hostOf(d) {
		return handle
	}
	s.metrics.Loopback()
	s.loopbackOnce.Do(func() {
		s.log.Warn().Str("prefill", h.from.URL).Str("decode", d.URL).
			Msg("the prefill backend names a loopback side channel; set VLLM_NIXL_SIDE_CHANNEL_HOST there, or kv.rewrite_loopback here")
	})
	if s.cfg.KV.RewriteLoopback {
		return handle.WithHost(hostOf(h.from))
	}
	return handle
}

// keptByDecode notes an answer of D with a handle of its own: with bidirectional_kv_xfer D
// keeps the blocks of all that it has answered, for a next turn that never asks for them.
func (s *Server) keptByDecode(d *router.Backend) {
	s.metrics.KeptByDecode()
	s.keptOnce.Do(func() {
		s.log.Warn().Str("decode", d.URL).
			Msg("the decode backend keeps the blocks of each answer for decoder_kv_blocks_ttl, 480 s unless set, and xpyd does not use them; start it without bidirectional_kv_xfer")
	})
}

// hostOf is the host of a backend as configured. It allocates nothing: Addr was built
// by net.JoinHostPort.
func hostOf(b *router.Backend) string {
	return strings.Trim(b.Addr[:strings.LastIndexByte(b.Addr, ':')], "[]")
}

func loopback(host []byte) bool {
	return bytes.HasPrefix(host, []byte("127.")) || string(host) == "::1" || bytes.EqualFold(host, []byte("localhost"))
}

// engineSeen notices that an engine was started anew: its handles carry another id.
// What was known against its predecessor is forgotten.
func (s *Server) engineSeen(b *router.Backend, id []byte) {
	e := s.engines.get(b)
	if e == nil {
		return
	}
	id = withoutRank(id)
	old := e.id.Load()
	if len(id) == 0 || old != nil && *old == string(id) {
		return
	}
	fresh := string(id)
	if e.id.CompareAndSwap(old, &fresh) && old != nil {
		s.log.Info().Str("prefill", b.URL).Msg("prefill engine has restarted")
		b.Reset()
		s.warm.cold(b, true)
	}
}

// withoutRank cuts _dp<rank> off: one vLLM with several data parallel ranks answers
// with the id of whichever computed.
func withoutRank(id []byte) []byte {
	if i := bytes.LastIndex(id, []byte("_dp")); i > 0 && netio.AllDigits(id[i+3:]) {
		return id[:i]
	}
	return id
}
