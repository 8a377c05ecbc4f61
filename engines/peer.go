package engines

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

// Peer returns what the connector has to know of a prefill engine before its answer. known is false
// while its bootstrap server has not said so. A connector without such a server needs nothing.
func (s *Set) Peer(b *router.Backend) (peer *kvparams.Peer, known bool) {
	if _, pairs := s.cfg.Dialect.(kvparams.Pairing); !pairs {
		return nil, true
	}
	if e := s.get(b); e != nil {
		peer = e.peer.Load()
	}
	return peer, peer != nil
}

// AskPeer asks the bootstrap server of b again, because a decode engine has failed with what is known
// of b. It returns nil if the server does not answer, and b then gets no requests until it does.
//
// An engine that dies fails many requests at once. The answer to a question that was put after a
// request failed serves that request too, so they ask together.
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
	pairing, pairs := c.s.cfg.Dialect.(kvparams.Pairing)
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
		return pairing.ReadPeer(address, nil)
	}
	status, answer, err := c.fetch(c.ctx, "http://"+address+path, "")
	if err == nil && status != http.StatusOK {
		err = statusError(status)
	}
	if err != nil {
		return kvparams.Peer{}, err
	}
	return pairing.ReadPeer(address, answer)
}
