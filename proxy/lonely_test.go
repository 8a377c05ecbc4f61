package proxy_test

import (
	"net/http"
	"testing"

	"xpyd/kvparams"
	"xpyd/router"
)

// The last prefill engine may leave while the process runs. Decode engines of some connectors wait for KV
// that nobody sends, so they get no request then.
func TestConnectorsWithoutPrefillEngines(t *testing.T) {
	for _, name := range kvparams.Names() {
		t.Run(name, func(t *testing.T) {
			d, _ := kvparams.Lookup(name)
			asked := false
			e := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
				asked = true
				w.WriteHeader(500)
			})
			r := newRig(t, rigOptions{dialect: d, prefill: -1, router: func(c *router.Config) { e.asDecode(c) }})
			a := r.call(forms(prompt, 2)[0])
			if asked != d.DecodeOnlySafe() {
				t.Errorf("decode was asked: %v, %d %s", asked, a.status, a.body)
			}
			if !asked && (a.status != 503 || a.code() != "prefill_unavailable") {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}
