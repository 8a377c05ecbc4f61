package cmd

import (
	"context"
	"errors"
	"net"
	"strconv"

	"xpyd/kvparams"
	"xpyd/router"
)

// askPeer fills in what the connector has to know of a healthy prefill engine before its answer. If
// the engine's bootstrap server does not say, that is a fault.
func (p *engineProber) askPeer(ctx context.Context, e *engine, entry router.Entry) {
	pairing, ok := e.dialect.(kvparams.Pairing)
	if !ok || e.health != "ok" {
		return
	}
	port, path := pairing.Bootstrap()
	if entry.Bootstrap > 0 {
		port = entry.Bootstrap
	}
	address := net.JoinHostPort(hostOf(e.url), strconv.Itoa(port))
	var answer []byte
	var err error
	if path != "" {
		if answer, err = p.get(ctx, "http://"+address+path); err != nil {
			p.fault("%s has no bootstrap server at %s: %v; start it with %s, and put its port after the URL, as in %s bootstrap=8998",
				e, address, err, e.dialect.EngineConfig(kvparams.Prefills), e.url)
			return
		}
	}
	_, rank := router.SplitRank(e.url)
	peer, err := pairing.ReadPeer(address, rank, answer)
	if err != nil {
		p.fault("%s: %v", e, err)
		return
	}
	p.peers[e.url] = &peer
}

// target notes how a prefill leg names the decode engine, if the connector asks for that.
func (p *engineProber) target(e *engine, entry router.Entry, ranks int) {
	directed, ok := e.dialect.(kvparams.Directed)
	if !ok {
		return
	}
	port := directed.TargetPort()
	if entry.Bootstrap > 0 {
		port = entry.Bootstrap
	}
	p.targets[e.url] = kvparams.TargetAt(hostOf(e.url), port, ranks)
}

// ranksIn is how many data-parallel ranks the engine of a backend has as far as the pool names them, or 0 if it is none.
func ranksIn(pool []router.Entry, backend string) (ranks int) {
	base, rank := router.SplitRank(backend)
	if rank < 0 {
		return 0
	}
	for _, entry := range pool {
		if other, n := router.SplitRank(entry.URL); other == base {
			ranks = max(ranks, n+1)
		}
	}
	return ranks
}

// together sends both legs at once. If prefill fails, decode would wait for it.
func (p *engineProber) together(ctx context.Context, r *round, req *kvparams.Request, leg *kvparams.Leg) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, counted := p.pulledTokens(ctx, r.decode)
	beside := *leg
	prefilled := make(chan error, 1)
	go func() {
		_, err := p.prefillLeg(ctx, r, req, &beside)
		if prefilled <- err; err != nil {
			cancel()
		}
	}()
	decodeErr := p.decodeLeg(ctx, r, req, kvparams.Handle{}, leg)
	if decodeErr != nil {
		cancel()
	}
	prefillErr := <-prefilled
	switch {
	case prefillErr != nil && (decodeErr == nil || !errors.Is(prefillErr, context.Canceled)):
		r.result = "prefill"
		return prefillErr
	case decodeErr != nil:
		r.result = "decode"
		return decodeErr
	case counted && !p.pulledSince(ctx, r.decode, before):
		r.result = "no pull"
		return p.giveBack(ctx, leftover{r: r, req: req, id: leg.ID, deaf: true}, errNoPull(r.dialect))
	}
	return nil
}

// errNoPull is about a decode engine that computed a prompt although prefill had. That is what an
// engine without the connector does, and one to which the legs' parameters mean nothing.
func errNoPull(d kvparams.Dialect) error {
	return errors.New("decode answered without pulling the blocks; start it with " + d.EngineConfig(kvparams.Decodes))
}
