package config

import (
	"slices"
	"strings"

	"xpyd/router"
)

// notPassed are the headers that headers.pass may not name, in lower case, with the reason.
var notPassed = map[string]string{
	"authorization": "always goes on, or backend_api_key in its place; remove it",
	"x-api-key":     "holds a client's key, which xpyd sends on as Authorization or not at all; remove it, and set backend_api_key if the engines ask for a key",
	"user-agent":    "always goes on; remove it",
	"traceparent":   "always goes on; remove it",
	"tracestate":    "always goes on; remove it",

	"anthropic-version": "always goes on; remove it",
	"anthropic-beta":    "always goes on; remove it",

	"x-request-id":     ownHeader,
	"host":             ownHeader,
	"content-type":     ownHeader,
	"content-length":   ownHeader,
	"content-encoding": ownHeader,
	"accept-encoding":  ownHeader,
	"expect":           ownHeader,

	"connection":          ofConnection,
	"proxy-connection":    ofConnection,
	"keep-alive":          ofConnection,
	"te":                  ofConnection,
	"trailer":             ofConnection,
	"transfer-encoding":   ofConnection,
	"upgrade":             ofConnection,
	"http2-settings":      ofConnection,
	"proxy-authenticate":  ofConnection,
	"proxy-authorization": ofConnection,
}

const (
	ownHeader    = "is written by xpyd itself; remove it"
	ofConnection = "is about one connection and never goes on; remove it"
)

// checkPassed refuses two kinds of headers. One that no request can have would be a setting that
// does nothing. One that xpyd writes itself would be in the request twice, or would end a request
// where the engine sees no end.
func (c *Config) checkPassed() error {
	for i, name := range c.Headers.Pass {
		low := strings.ToLower(name)
		switch why := notPassed[low]; {
		case !isToken(name):
			return invalid("headers.pass", name, "is no name of a header; try X-Session-ID")
		case why != "":
			return invalid("headers.pass", name, why)
		case low == "x-data-parallel-rank" && c.ranked() != "":
			return invalid("headers.pass", name, "is written by xpyd where backends are ranks, as "+c.ranked()+" is; remove it")
		case slices.ContainsFunc(c.Headers.Pass[:i], func(o string) bool { return strings.ToLower(o) == low }):
			return invalid("headers.pass", name, "is listed twice; remove one")
		}
	}
	return nil
}

// Fits says why the pools, as operators have changed them, cannot be those of c, or returns nil.
func (c Config) Fits(pools router.Config) error {
	c.Router = pools // c is a copy
	for _, check := range []func() error{c.checkPools, c.checkOwnPort, c.checkConnectors, c.checkPassed} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
