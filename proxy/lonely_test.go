package proxy_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"xpyd/kvparams"
	"xpyd/router"
)

// The last prefill engine may leave while the process runs. Decode engines of some connectors wait for KV
// that nobody sends, so they get no request then.
func TestConnectorsWithoutPrefillEngines(t *testing.T) {
	together(t)
	for _, name := range kvparams.Names() {
		t.Run(name, func(t *testing.T) {
			d, _ := kvparams.Lookup(name)
			var asked atomic.Bool
			e := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
				asked.Store(true)
				w.WriteHeader(500)
			})
			r := newRig(t, rigOptions{dialect: d, prefill: -1, router: func(c *router.Config) { e.asDecode(c) }})
			a := r.call(forms(prompt, 2)[0])
			if asked.Load() != d.DecodeOnlySafe() {
				t.Errorf("decode was asked: %v, %d %s", asked.Load(), a.status, a.body)
			}
			ready := r.send(http.MethodGet, "/readyz", "")
			if want := map[bool]int{true: 200, false: 503}[d.DecodeOnlySafe()]; ready.status != want {
				t.Errorf("/readyz: %d %q, want %d", ready.status, ready.body, want)
			}
			if !asked.Load() && (a.status != 503 || a.code() != "prefill_unavailable") {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}
