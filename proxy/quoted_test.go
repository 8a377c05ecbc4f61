package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"xpyd/kvparams"
)

// Some engines quote the whole request when they refuse it. Clients see such an error only if it does not
// show what decode was told of prefill's blocks.
func TestRefusalThatQuotesTheHandle(t *testing.T) {
	eachConnectorThat(t, func(d kvparams.Dialect) bool { return d.HandleInAnswer() || d.Name() == "mooncake" }, func(t *testing.T, d kvparams.Dialect) {
		for _, status := range []int{400, 404} {
			for _, quotes := range []bool{true, false} {
				decode := newStub(t, func(w http.ResponseWriter, q *http.Request) {
					body, _ := io.ReadAll(q.Body)
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					if !quotes {
						body = []byte(`{"error":{"message":"top_k must be above 0"}}`)
					}
					_, _ = w.Write(body)
				})
				r := newRig(t, rigOptions{dialect: d, router: decode.asDecode})
				a := r.call(call{prompt: prompt, tokens: 3})
				for _, secret := range []string{"remote_", "engine_id", "transfer_id"} {
					if strings.Contains(a.body, secret) {
						t.Errorf("%d, quotes %v: the client sees %q: %s", status, quotes, secret, a.body)
					}
				}
				if own := strings.Contains(a.body, "top_k"); a.status != status || own == quotes {
					t.Errorf("%d %s, want %d and, if it quotes nothing, the engine's own text", a.status, a.body, status)
				}
			}
		}
	})
}
