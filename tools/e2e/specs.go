package main

import (
	"context"
	"fmt"
	"strings"
)

// Most checks share these engines. An engine of another spec with the same name replaces one. At
// most four run at a time, because each takes about 1.8 GiB.

// plainEngine computes what the others are compared with. Without prefix caching it computes each
// of its answers from the first token on.
func plainEngine() spec {
	return spec{name: "plain", role: "plain", port: 0, args: append(baseArgs(), "--no-enable-prefix-caching")}
}

// prefillEngine is number n from 1. p1 is on the second port, p2 on the fourth.
func prefillEngine(n int) spec {
	return spec{name: fmt.Sprint("p", n), role: "prefill", port: 2*n - 1, args: baseArgs()}
}

// decodeEngine is number n from 1. d1 is on the third port, d2 on the fifth.
func decodeEngine(n int) spec {
	return spec{name: fmt.Sprint("d", n), role: "decode", port: 2 * n, args: baseArgs()}
}

// storeServer is the cache server of a connector that has one.
func storeServer() spec { return spec{name: "store", role: "store", port: 18} }

// baseArgs has requests in the log, so that ids can be followed, tool calls, and no prefill in
// chunks, because on a CPU a request with a seed whose prompt is cut kills the engine (vLLM 0.32.0:
// "CPU Generator does not use offset").
func baseArgs() []string {
	return []string{"--enable-log-requests", "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--max-num-batched-tokens", "16384"}
}

// proxyOf starts xpyd over engines, whose roles say which pool each belongs to.
func (f *fleet) proxyOf(ctx context.Context, engines []*engine, args ...string) (*proxy, error) {
	pools := map[string][]string{}
	for _, e := range engines {
		pools[e.role] = append(pools[e.role], e.entry())
	}
	args = append([]string{"--prefill", strings.Join(pools["prefill"], ","), "--decode", strings.Join(pools["decode"], ",")}, args...)
	return f.proxy(ctx, args...)
}
