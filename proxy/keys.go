package proxy

import (
	"fmt"
	"math"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/engines/journal"
	"xpyd/intake/budget"
	"xpyd/intake/heads"
	"xpyd/intake/limits"
	"xpyd/netio"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// clientOf says who a client is: the holder of its key, or its address where no keys are set.
func (s *Server) clientOf(of *limits.Account, conn *netio.Conn) budget.Client {
	if of != nil {
		return budget.Client{Key: of.ID}
	}
	return budget.Client{IP: conn.Network()}
}

// perAddress is the cap on the requests of one address. Where keys are set, their accounts count.
func perAddress(keys *limits.Book, most int) int {
	if keys.Required() {
		return 0
	}
	return most
}

// turn says where a request that waits for a slot has its place: whose requests are served in turn with
// those of others, and how urgent it is. The header goes before the body, as in vLLM. Where no keys are set,
// anybody could say to be more urgent than all others, so no request is.
func turn(w *router.Want, of *limits.Account, conn *netio.Conn, h *fasthttp.RequestHeader, priority int) {
	if of == nil {
		ip := conn.Network().As16()
		w.Flow, w.Priority = router.KeyOf(ip[:]), 0
		return
	}
	w.Flow, w.Priority = uint64(of.Number()), priority
	if n, ok := heads.PriorityOf(h); ok {
		w.Priority = n
	}
}

// patience returns how long a request may take.
func (s *Server) patience(h *fasthttp.RequestHeader) (time.Duration, *fault.Error) {
	d, ok := heads.TimeoutOf(h, s.bound().Timeouts.Request)
	if !ok {
		return 0, fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidType, heads.Timeout, "header X-Request-Timeout must be a number of seconds above 0")
	}
	return d, nil
}

// strip takes away what requests of the account may not say about their priority. It returns the body's
// fields that they may not have.
func (s *Server) strip(h *fasthttp.RequestHeader, of *limits.Account) (deny []string) {
	if of.Priority() {
		return s.cfg.DenyFields
	}
	h.Del(heads.Priority)
	return s.denied
}

// begin counts a request for the holder of its key, or for the address.
func (s *Server) begin(u *limits.Use, client budget.Client, now time.Time) *fault.Error {
	if r := u.Begin(u.Account, now); r != nil {
		return s.limited(u.Account, r)
	}
	if !s.clients.Begin(client) {
		return fault.ErrClientLimit()
	}
	return nil
}

// permit refuses a model that the key may not use.
func (s *Server) permit(u *limits.Use, model []byte) *fault.Error {
	if u.Allows(model) {
		return nil
	}
	return s.limited(u.Account, &limits.Refusal{Limit: limits.Models})
}

// saltPrompt keeps the prompt apart from those of other keys in the engines' caches and in the router's memory, if its key
// is to have that.
func (in *incoming) saltPrompt() *fault.Error {
	if !in.use.Salted() {
		return nil
	}
	own, err := in.req.OwnSalt()
	if err != nil {
		return fault.BadBody(err)
	}
	if salt := in.use.Salt(own); salt != "" {
		in.req.Salt(salt)
	}
	return nil
}

// charge takes the tokens of a prompt from what its key has left.
func (s *Server) charge(u *limits.Use, tokens int, now time.Time) *fault.Error {
	if r := u.Charge(tokens, now); r != nil {
		return s.limited(u.Account, r)
	}
	return nil
}

// limited is what a client is told whose key has met a limit.
func (s *Server) limited(of *limits.Account, r *limits.Refusal) *fault.Error {
	s.metrics.KeyRefused(of.Name, r.Limit.String())
	switch r.Limit {
	case limits.InFlight:
		return fault.ErrClientLimit()
	case limits.Models:
		return fault.NewError(fasthttp.StatusNotFound, fault.CodeModelNotFound, "model", "no such model for this key; GET /v1/models lists those that it may name")
	}
	wait := max(1, int(math.Ceil(r.Wait.Seconds())))
	message := fmt.Sprintf("this key has spent its %s_per_minute; try again in %d s", r.Limit, wait)
	return fault.NewError(fasthttp.StatusTooManyRequests, fault.CodeRateLimit, "", message).After(wait)
}

// ReplaceKeys puts new keys and limits, which must fit, in force for later requests.
func (s *Server) ReplaceKeys(all []limits.Terms) {
	if c := s.keys.Replace(all, s.bound().Limits.ClientInFlight); !c.None() {
		s.engines.Journal.Tell(s.log.Info().Strs("joined", c.Joined).Strs("left", c.Left).Strs("changed", c.Changed), journal.Event{
			Kind: journal.Keys, Text: "keys reloaded", Change: fmt.Sprintf("%d joined, %d left, %d changed", len(c.Joined), len(c.Left), len(c.Changed)),
		})
	}
}

// KeysFit returns an error if ReplaceKeys cannot put these keys in force.
func (s *Server) KeysFit(all []limits.Terms) error { return s.keys.Fits(all) }
