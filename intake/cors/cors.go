// Package cors lets web pages use the data port. A browser asks beforehand whether a page of another
// origin may send its request, and shows the page of an answer only what that answer allows.
package cors

import (
	"bytes"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
)

// Config says which pages may use the data port. Without origins none may.
type Config struct {
	// Origins are the origins of the pages, such as https://chat.example.com. A single * stands for
	// all.
	Origins []string `mapstructure:"origins"`
	// Credentials lets these pages send what browsers attach by themselves: cookies, passwords of
	// HTTP and certificates of TLS. An API key that a page sends needs no such leave.
	Credentials bool `mapstructure:"credentials"`
}

// maxAge is how long a browser may remember the answer to a preflight, in seconds.
const maxAge = "600"

// exposed are the fields of an answer that a page may read besides Content-Type and the like.
const exposed = "X-Request-Id, Request-Id, X-Xpyd-Path, X-Xpyd-Reason, X-Xpyd-Prefill, X-Xpyd-Decode, Server-Timing, Retry-After, X-Should-Retry, " +
	"X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, " +
	"X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

// Policy marks answers. It never changes. A nil Policy allows nothing and writes nothing.
type Policy struct {
	origins     []string
	all         bool
	credentials bool
}

// New makes the policy of a configuration that Check has accepted. It is nil without origins.
func New(cfg Config) *Policy {
	if len(cfg.Origins) == 0 {
		return nil
	}
	return &Policy{origins: cfg.Origins, all: cfg.Origins[0] == "*", credentials: cfg.Credentials}
}

// Check says what is wrong with the origins. The text of its error follows the value.
func (c Config) Check() (value string, err error) {
	for i, o := range c.Origins {
		switch {
		case slices.Contains(c.Origins[:i], o):
			return o, errors.New("is listed twice; remove one")
		case o == "*" && len(c.Origins) > 1:
			return o, errors.New("stands for all origins; remove the others")
		case o == "*" && c.Credentials:
			return o, errors.New("lets every page of the web in, which browsers refuse together with cors.credentials; name the origins")
		case o != "*" && !isOrigin(o):
			return o, errors.New("is no origin as browsers send it: scheme, host and port where it is not the usual one, in lower case; try https://chat.example.com or http://localhost:3000")
		}
	}
	return "", nil
}

// isOrigin reports whether a browser could send o. It leaves out the port of the scheme.
func isOrigin(o string) bool {
	u, err := url.Parse(o)
	if err != nil || u.Host == "" || u.Hostname() == "" || u.User != nil || strings.HasSuffix(o, ":") || strings.Contains(o, "*") {
		return false
	}
	usual := u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443"
	return !usual && o == strings.ToLower(u.Scheme+"://"+u.Host)
}

// allows returns what Access-Control-Allow-Origin says to a page of the origin, or "" if the page may
// not read the answer.
func (p *Policy) allows(origin []byte) string {
	switch {
	case len(origin) == 0:
		return ""
	case p.all:
		return "*"
	}
	for _, o := range p.origins {
		if string(origin) == o {
			return o
		}
	}
	return ""
}

// Mark lets the page that sent the request read the answer, if it may. It comes after everything else
// that is written into the head.
func (p *Policy) Mark(ctx *fasthttp.RequestCtx) {
	if p == nil {
		return
	}
	h := &ctx.Response.Header
	if !p.all && !bytes.Contains(h.Peek("Vary"), []byte("Origin")) {
		h.Add("Vary", "Origin") // also where there is none, as a cache could show that answer to a page
	}
	origin := p.allows(ctx.Request.Header.Peek("Origin"))
	if origin == "" {
		return
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Timing-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposed)
	if p.credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
}

// Options answers an OPTIONS request to a path that takes the methods. To a preflight of a page that
// may go on, the answer says so. Mark has to follow.
func (p *Policy) Options(ctx *fasthttp.RequestCtx, methods string) {
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	h := &ctx.Response.Header
	h.Set("Allow", methods)
	if p == nil || p.allows(ctx.Request.Header.Peek("Origin")) == "" || len(ctx.Request.Header.Peek("Access-Control-Request-Method")) == 0 {
		return
	}
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Max-Age", maxAge)
	// A * would not stand for Authorization. SDKs add fields of their own, so a list would never be
	// complete. What a field may do is decided where the request itself is read.
	if asked := ctx.Request.Header.Peek("Access-Control-Request-Headers"); isList(asked) {
		h.SetBytesV("Access-Control-Allow-Headers", asked)
	}
	h.Set("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
}

var listBytes = netio.ByteClass("-_.,+!#$%&'*^`|~ " + netio.Digits + netio.Letters)

// isList reports whether v is a list of names and nothing else.
func isList(v []byte) bool {
	for _, c := range v {
		if !listBytes[c] {
			return false
		}
	}
	return len(v) > 0
}
