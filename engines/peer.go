package engines

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

// Peer returns what the connector has to know about a prefill engine before the engine has answered.
// known is false until the engine's bootstrap server has said it. A connector without such a server
// needs nothing.
func (s *Set) Peer(b *router.Backend) (peer *kvparams.Peer, known bool) {
	if _, pairs := s.dialect(b).(kvparams.Pairing); !pairs {
		return nil, true
	}
	if e := s.get(b); e != nil {
		peer = e.peer.Load()
	}
	return peer, peer != nil
}

// AskPeer asks the bootstrap server of b again, because a decode engine has failed with what xpyd knows
// about b. If the server does not answer, AskPeer returns nil, and b gets no requests until it does.
//
// An engine that dies fails many requests at once. A request can use the answer to any question that
// was asked after its failure, so these requests share one question.
func (s *Set) AskPeer(b *router.Backend) *kvparams.Peer {
	e, failed := s.get(b), time.Now()
	if e == nil {
		return nil
	}
	e.asking.Lock()
	defer e.asking.Unlock()
	if !e.asked.After(failed) {
		e.asked = time.Now()
		s.checks.learnPeer(b)
	}
	return e.peer.Load()
}

// learnPeer asks the bootstrap server of a prefill engine that is healthy. It asks with each check,
// as an engine that was restarted has another id.
func (c *checker) learnPeer(b *router.Backend) {
	pairing, pairs := c.s.dialect(b).(kvparams.Pairing)
	e := c.s.get(b)
	if !pairs || e == nil || b.Role != router.Prefill {
		return
	}
	peer, err := c.askPeer(b, pairing)
	if c.ctx.Err() != nil {
		return
	}
	if err != nil {
		if e.peer.Swap(nil) != nil || !e.strange.Swap(true) {
			c.s.cfg.Log.Warn().Str("prefill", b.URL).Err(err).Msg("the prefill engine gets no requests: its bootstrap server does not say who it is")
		}
		return
	}
	e.strange.Store(false)
	e.peer.Store(&peer)
	c.s.Seen(b, []byte(peer.EngineID))
}

func (c *checker) askPeer(b *router.Backend, pairing kvparams.Pairing) (kvparams.Peer, error) {
	port, path := pairing.Bootstrap()
	if own := b.Bootstrap(); own > 0 {
		port = own
	}
	address := net.JoinHostPort(hostOf(b.Addr), strconv.Itoa(port))
	if path == "" {
		return pairing.ReadPeer(address, b.Rank, nil)
	}
	status, answer, err := c.fetch(c.ctx, "http://"+address+path, "", probeBody)
	if err == nil && status != http.StatusOK {
		err = statusError(status)
	}
	if err != nil {
		return kvparams.Peer{}, err
	}
	return pairing.ReadPeer(address, b.Rank, answer)
}

// Target returns a decode engine in the form in which the prefill leg names it, or nil if the connector does
// not need this.
func (s *Set) Target(d *router.Backend) *kvparams.Peer {
	directed, ok := s.cfg.Dialects.Of(d.Connector).(kvparams.Directed)
	if !ok {
		return nil
	}
	port := directed.TargetPort()
	if own := d.Bootstrap(); own > 0 {
		port = own
	}
	return kvparams.TargetAt(hostOf(d.Addr), port, ranksBeside(s.cfg.Router.Snapshot(), d))
}

// ranksBeside is how many data-parallel ranks the engine of d has as far as the pool names them, or 0 if d is none.
func ranksBeside(snap *router.Snapshot, d *router.Backend) (ranks int) {
	if d.Rank < 0 {
		return 0
	}
	for _, o := range snap.Members(d.Role) {
		if o.Base() == d.Base() {
			ranks = max(ranks, o.Rank+1)
		}
	}
	return max(ranks, d.Rank+1)
}
