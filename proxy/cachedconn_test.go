package proxy_test

import (
	"strings"
	"testing"

	"xpyd/kvparams"
)

// The prompt was computed by prefill, which had none of it. What decode found in the store is no hit.
func TestCachedTokensOfEachConnector(t *testing.T) {
	answersFirst := func(d kvparams.Dialect) bool { return !d.Concurrent() } // otherwise decode answers before prefill has told what it had
	eachConnectorThat(t, answersFirst, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{dialect: d})
		c := forms(prompt+"[[decode-0:cached=7]]", 3)[0] // an engine counts KV from elsewhere as cached
		a := r.call(c)
		r.expectWhole(c, a)
		r.await("counted", func() bool { return r.metric(`xpyd_requests_total{`) == 1 })
		if n := r.metric("xpyd_prompt_tokens_cached_total"); n != 0 || !strings.Contains(string(a.body), `"cached_tokens":0`) {
			t.Errorf("%v of the prompt's tokens count as cached, and the client is told %s", n, a.body)
		}
	})
}
