package admin

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"xpyd/intake/gate"
	"xpyd/proxy"
)

// clientHeader is how the page and xpyd ctl say what a change was made with.
const clientHeader = "X-Xpyd-Client"

// holderKey is the key of the name of a token's holder in the context of a request.
type holderKey struct{}

// actorOf says who asks for a change: the holder of a token or a certificate, if there is one, the address, and with what.
func actorOf(r *http.Request) string {
	who, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		who = r.RemoteAddr
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who = r.TLS.PeerCertificates[0].Subject.CommonName + " from " + who
	}
	if name, ok := r.Context().Value(holderKey{}).(string); ok {
		who = name + " from " + who
	}
	switch r.Header.Get(clientHeader) {
	case "page":
		return who + ", on the page"
	case "ctl":
		return who + ", with xpyd ctl"
	}
	return who + ", over HTTP"
}

// Tokens are the bearer tokens that are asked for. If there are none, everybody on this host may enter.
type Tokens struct{ now atomic.Pointer[tokenRing] }

type tokenRing struct {
	held []proxy.AdminToken // by slot of keys
	keys *gate.Keyring
}

// NewTokens are those that Put puts in force.
func NewTokens(alone string, held []proxy.AdminToken) *Tokens {
	t := new(Tokens)
	t.Put(alone, held)
	return t
}

// Put replaces all tokens, for requests that come from now on. alone is one without a holder, or "". It may be called at any time.
func (t *Tokens) Put(alone string, held []proxy.AdminToken) {
	held = slices.Clone(held)
	if alone != "" {
		held = append(held, proxy.AdminToken{Secret: alone})
	}
	secrets := make([]string, len(held))
	for i, one := range held {
		secrets[i] = one.Secret
	}
	t.now.Store(&tokenRing{held, gate.NewKeyring(secrets)})
}

// guard asks for a token, and lets the holder of one that is read-only change nothing.
func (p *pages) guard(next http.Handler) http.Handler {
	local := guardHost(next)
	if p.cfg.Tokens == nil {
		return local
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ring := p.cfg.Tokens.now.Load()
		tokens := ring.held
		if len(tokens) == 0 {
			local.ServeHTTP(w, r)
			return
		}
		slot, ok := ring.keys.Slot([]byte(r.Header.Get("Authorization")))
		switch open := isOpen(r); {
		case !open && !ok:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "give admin_token as a bearer token", http.StatusUnauthorized)
			return
		case !open && tokens[slot].ReadOnly && !reads(r):
			refuse(w, http.StatusForbidden, "this token may only read; use one of admin_token_file that is not read-only")
			return
		case ok && tokens[slot].Name != "":
			r = r.WithContext(context.WithValue(r.Context(), holderKey{}, tokens[slot].Name))
		}
		next.ServeHTTP(w, r)
	})
}

// reads reports whether a request changes nothing. A profile of the heap holds prompts.
func reads(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasPrefix(r.URL.Path, "/debug/")
}
