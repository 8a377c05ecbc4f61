package handoff

import (
	"bytes"
	"strings"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

type handleState uint8

const (
	handleNone handleState = iota
	handleIssued
	handleSent   // some D may have seen it, so it is never sent to another one
	handleSpared // likewise, but that D has not begun with it
	handleEnded
)

// Handoff makes sure that a handle is used only once. P frees the blocks once D has read them, and does
// not check a second read, which would return another prompt's answer with status 200. A handle goes
// from issued to sent to ended, or from issued to ended. Between sent and ended, a handle is spared if D
// refused the request or never had all of it. Only a dial failure leads back from sent to issued. A
// Handoff serves one request at a time.
type Handoff struct {
	k      *Keeper
	handle kvparams.Handle // aliases the prefill leg's buffer until ended
	from   *router.Backend
	to     *router.Backend // the only D that may have it; nil for any
	at     *router.Backend // the D that it was sent to
	since  time.Time       // the first byte of P's answer
	issued time.Time       // xpyd had the whole answer, of the engine that it knew P to be
	state  handleState
	failed bool // the request failed, and D may have begun with it
	aborts bool // likewise, and D aborts it, if it lives
}

// Issue takes over a handle that from has given in an answer whose first byte came at since. P's lease begins just before
// that byte. The rest of the answer may take long.
func (h *Handoff) Issue(handle kvparams.Handle, from *router.Backend, since time.Time) {
	if h.state != handleNone && h.state != handleEnded {
		panic("BUG: handle issued over a live one")
	}
	*h = Handoff{k: h.k, handle: handle, from: from, since: since, issued: time.Now(), state: handleIssued}
	from.HandleIssued()
	h.k.cfg.Ended(Issued)
	h.k.cfg.Ledger.pin(handle.Blocks)
}

// Direct keeps the handle for d, into whose memory P will write.
func (h *Handoff) Direct(d *router.Backend) {
	if _, directed := h.k.cfg.Dialects.Of(d.Connector).(kvparams.Directed); directed {
		h.to = d
	}
}

// FreshFor reports whether d would still find the blocks and may have them. If the engine that gave the handle is
// gone, no D that would wait for it gets the handle.
func (h *Handoff) FreshFor(d *router.Backend) bool {
	return h.Fresh() && (h.to == nil || h.to == d) && !h.Gone() && !(h.waits() && h.from.State() == router.Down)
}

// Live reports whether there is a handle that has not ended.
func (h *Handoff) Live() bool { return h.state != handleNone && h.state != handleEnded }

// Unseen reports whether there is a handle that no D has seen.
func (h *Handoff) Unseen() bool { return h.state == handleIssued }

// From returns the backend that gave the last handle.
func (h *Handoff) From() *router.Backend { return h.from }

// LeaseEnd returns when P frees blocks that no D has read.
func (h *Handoff) LeaseEnd() time.Time { return h.since.Add(h.k.cfg.KV.Lease) }

func (h *Handoff) age() time.Duration { return time.Since(h.since) }

// Fresh reports whether D would still find the blocks.
func (h *Handoff) Fresh() bool { return h.age() < h.k.cfg.KV.Lease-h.k.cfg.KV.LeaseMargin }

// SendTo returns the handle for one request to d.
func (h *Handoff) SendTo(d *router.Backend) kvparams.Handle {
	h.at = d
	return h.asSeenBy(d, h.send())
}

// send marks the handle as sent.
func (h *Handoff) send() kvparams.Handle {
	if h.state != handleIssued {
		panic("BUG: handle sent twice")
	}
	h.state = handleSent
	return h.handle
}

// Unsent takes a send back if no connection was made, because then no D has seen the handle.
func (h *Handoff) Unsent() {
	if h.state == handleSent {
		h.state = handleIssued
	}
}

// End ends the handle and removes its blocks from the ledger.
func (h *Handoff) End(how End) {
	if !h.Live() {
		return
	}
	h.state = handleEnded
	h.from.HandleEnded()
	h.k.cfg.Ended(how)
	h.k.cfg.Ledger.unpin(h.handle.Blocks)
}

// Lose ends a handle whose blocks wait for the end of their lease.
func (h *Handoff) Lose(why Orphan) {
	if h.Live() {
		h.End(why.end())
		h.k.strand(h.handle.Blocks, h.since, why)
	}
}

// strand counts blocks that only the end of P's lease will free.
func (k *Keeper) strand(blocks int, since time.Time, why Orphan) {
	k.cfg.Orphaned(why)
	k.cfg.Ledger.strand(blocks, since.Add(k.cfg.KV.Lease))
}

// transfer passes the duty to end the handle to a release. The backend still counts the handle as its
// own, until the caller has called HandleEnded.
func (h *Handoff) transfer() (from *router.Backend) {
	if !h.Live() {
		panic("BUG: release of a handle that has ended")
	}
	h.state = handleEnded
	return h.from
}

// Allows checks a handle's host against kv.allow_hosts.
func (k *Keeper) Allows(host []byte) bool {
	if len(k.cfg.KV.AllowHosts) == 0 {
		return true
	}
	for _, h := range k.cfg.KV.AllowHosts {
		if strings.EqualFold(h, string(host)) {
			return true
		}
	}
	return false
}

// asSeenBy returns the handle as decode backend d gets it. This is P's handle byte for byte, unless
// it has a loopback host that d cannot reach. Such a host is counted each time, logged once, and
// replaced if the configuration says so.
func (h *Handoff) asSeenBy(d *router.Backend, handle kvparams.Handle) kvparams.Handle {
	k := h.k
	if !loopback(handle.RemoteHost) || hostOf(h.from) == hostOf(d) {
		return handle
	}
	k.cfg.Loopback()
	k.loopbackOnce.Do(func() {
		k.cfg.Log.Warn().Str("prefill", h.from.URL).Str("decode", d.URL).
			Msg("the prefill backend names a loopback side channel; set VLLM_NIXL_SIDE_CHANNEL_HOST there, or kv.rewrite_loopback here")
	})
	if k.cfg.KV.RewriteLoopback {
		return handle.WithHost(hostOf(h.from))
	}
	return handle
}

// Place says from which host the engines of the next legs fetch an encoding. from has made the encoding, and
// gives its own host by the given name. ok is false for a host that kv.allow_hosts does not list. instead is
// empty if the host stays. Otherwise it is the host by which xpyd reaches from, because engines elsewhere cannot
// use a loopback host.
func (k *Keeper) Place(snap *router.Snapshot, from *router.Backend, host []byte) (instead string, ok bool) {
	if !k.Allows(host) {
		return "", false
	}
	if !loopback(host) || !elsewhere(snap, from) {
		return "", true
	}
	if k.cfg.KV.RewriteLoopback {
		return hostOf(from), true
	}
	k.encodingOnce.Do(func() {
		k.cfg.Log.Warn().Str("encode", from.URL).
			Msg("the encode backend names a loopback side channel, and not all engines are on its host; set VLLM_EC_SIDE_CHANNEL_HOST there, or kv.rewrite_loopback here")
	})
	return "", true
}

// elsewhere reports whether an engine that may fetch encodings is on another host than b.
func elsewhere(snap *router.Snapshot, b *router.Backend) bool {
	for _, role := range [...]router.Role{router.Prefill, router.Decode} {
		for _, m := range snap.Members(role) {
			if hostOf(m.Backend) != hostOf(b) {
				return true
			}
		}
	}
	return false
}

// KeptByDecode notes that an answer of D has a handle of its own. With bidirectional_kv_xfer, D keeps
// the blocks of all its answers for the next turn, but xpyd never asks for them.
func (k *Keeper) KeptByDecode(d *router.Backend) {
	k.cfg.Kept()
	k.keptOnce.Do(func() {
		k.cfg.Log.Warn().Str("decode", d.URL).
			Msg("the decode backend keeps the blocks of each answer for decoder_kv_blocks_ttl, 480 s unless set, and xpyd does not use them; start it without bidirectional_kv_xfer")
	})
}

// hostOf returns the host of a backend as configured. It allocates nothing. Addr was built by
// net.JoinHostPort, so its last colon ends the host.
func hostOf(b *router.Backend) string {
	return strings.Trim(b.Addr[:strings.LastIndexByte(b.Addr, ':')], "[]")
}

func loopback(host []byte) bool {
	return bytes.HasPrefix(host, []byte("127.")) || string(host) == "::1" || bytes.EqualFold(host, []byte("localhost"))
}
