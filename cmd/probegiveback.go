package cmd

import (
	"context"
	"fmt"

	"xpyd/kvparams"
)

// maxGiveBack bounds how many decode engines are asked to give one handle back.
const maxGiveBack = 3

// leftover is a handle that no decode engine has used.
type leftover struct {
	r      *round
	req    *kvparams.Request
	handle kvparams.Handle
	id     string
	deaf   bool // the round's decode engine has no connector: it cannot tell prefill anything
}

// giveBack has decode engines tell prefill to free the blocks, and returns why they are left
// with what came of it. An engine of 0.32 and later does so when it refuses a request, and
// its answer does not say whether prefill could be reached: so the round's own is asked, and
// some that may have a better way. Older ones may die of a prefill engine that cannot be
// reached then, so the blocks are read by one token, which fails or frees them.
func (p *engineProber) giveBack(ctx context.Context, l leftover, why error) error {
	waits := fmt.Errorf("%w; the blocks of this round wait for prefill's lease", why)
	if l.handle.None() || p.dialect.Reclaim() == kvparams.ReclaimLease || p.cfg.KV.Release == "off" {
		return waits
	}
	ask := p.releasers(l)
	for _, e := range ask {
		for _, h := range hostsOf(l) {
			// Refused by design.
			_, _ = p.post(ctx, e.url, p.dialect.AppendRelease(nil, l.req, h), l.id)
		}
	}
	if len(ask) > 0 {
		return why
	}
	if _, err := p.post(ctx, l.r.decode, p.dialect.AppendDrain(nil, l.req, l.handle), l.id); err != nil || l.deaf {
		return waits
	}
	return why
}

// hostsOf is the handle as prefill named its host, and with the host that prefill has here
// where the name is a loopback one.
func hostsOf(l leftover) []kvparams.Handle {
	if !loopback(string(l.handle.RemoteHost)) || hostOf(l.r.prefill) == string(l.handle.RemoteHost) {
		return []kvparams.Handle{l.handle}
	}
	return []kvparams.Handle{l.handle, l.handle.WithHost(hostOf(l.r.prefill))}
}

// releasers are the decode engines to ask: the round's own, then those on prefill's host, then
// others.
func (p *engineProber) releasers(l leftover) (list []*engine) {
	r := l.r
	for _, want := range []func(e *engine) bool{
		func(e *engine) bool { return e.url == r.decode && !l.deaf },
		func(e *engine) bool { return e.url != r.decode && sameHost(e.url, r.prefill) },
		func(e *engine) bool { return e.url != r.decode && !sameHost(e.url, r.prefill) },
	} {
		for _, e := range p.decodes {
			major, minor, ok := splitVersion(e.version)
			if ok && (major > 0 || minor >= 32) && e.health == "ok" && want(e) && len(list) < maxGiveBack {
				list = append(list, e)
			}
		}
	}
	return list
}
