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
	deaf   bool // the round's decode engine has no connector and cannot tell prefill anything
}

// giveBack makes decode engines tell prefill to free the blocks. It returns why they were not used,
// and adds if they now wait for the lease. An engine of 0.32 and later frees them when it refuses a
// request. Its answer does not say whether it could reach prefill, so giveBack asks the round's own
// engine and some that may reach prefill better. An older engine may die if it cannot reach prefill at
// that moment. There giveBack reads the blocks by one token, which fails or frees them.
func (p *engineProber) giveBack(ctx context.Context, l leftover, why error) error {
	if l.r.dialect.Reclaim() == kvparams.ReclaimNone {
		return why
	}
	waits := fmt.Errorf("%w; the blocks of this round wait for prefill's lease", why)
	if l.handle.None() || l.r.dialect.Reclaim() == kvparams.ReclaimLease || p.cfg.KV.Release == "off" {
		return waits
	}
	var ask []*engine
	refusal := l.r.dialect.Reclaim() == kvparams.ReclaimRefusal
	if refusal || l.r.dialect.Reclaim() == kvparams.ReclaimReject {
		ask = p.releasers(l)
	}
	for _, e := range ask {
		for _, h := range hostsOf(l) {
			// Refused by design.
			_, _ = p.post(ctx, e.url, l.r.dialect.AppendRelease(nil, l.req, h), l.id)
		}
	}
	if len(ask) > 0 {
		return why
	}
	if refusal {
		return waits
	}
	if _, err := p.post(ctx, l.r.decode, l.r.dialect.AppendDrain(nil, l.req, l.handle, l.id), l.id); err != nil || l.deaf {
		return waits
	}
	return why
}

// hostsOf returns the handle with the host that prefill named. If that is a loopback host, it also
// returns the handle with prefill's host as seen from here.
func hostsOf(l leftover) []kvparams.Handle {
	if !loopback(string(l.handle.RemoteHost)) || hostOf(l.r.prefill) == string(l.handle.RemoteHost) {
		return []kvparams.Handle{l.handle}
	}
	return []kvparams.Handle{l.handle, l.handle.WithHost(hostOf(l.r.prefill))}
}

// releasers returns the decode engines to ask: first the round's own, then those on prefill's host,
// then others.
func (p *engineProber) releasers(l leftover) (list []*engine) {
	r := l.r
	for _, want := range []func(e *engine) bool{
		func(e *engine) bool { return e.url == r.decode && !l.deaf },
		func(e *engine) bool { return e.url != r.decode && sameHost(e.url, r.prefill) },
		func(e *engine) bool { return e.url != r.decode && !sameHost(e.url, r.prefill) },
	} {
		for _, e := range p.decodes {
			if kvparams.Since(e.version, 32) && e.health == "ok" && e.dialect.Name() == r.dialect.Name() && want(e) && len(list) < maxGiveBack {
				list = append(list, e)
			}
		}
	}
	return list
}
