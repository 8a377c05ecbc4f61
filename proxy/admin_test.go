package proxy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"xpyd/router"
)

// Both pages show the rules by which a backend gets its requests, also after a reload.
func TestAdminShowsPoliciesAndWeights(t *testing.T) {
	var pools router.Config
	r := newRig(t, rigOptions{decode: 2, router: func(c *router.Config) {
		c.PrefillPolicy, c.DecodePolicy = "prefix", "power_of_two"
		c.Decode[0].Weight = 2.5
		c.PD = router.PD{Mode: router.PDAuto, ThresholdTokens: 7, StallWeight: 4}
		pools = *c
	}})
	expect := func(want ...string) {
		t.Helper()
		type entry struct {
			Policy string
			Weight float64
			GPUs   float64
			Models []string
		}
		var byRole map[string][]entry
		var page struct {
			Backends []entry
			PD       struct {
				Mode            string
				ThresholdTokens int     `json:"threshold_tokens"`
				StallWeight     float64 `json:"stall_weight"`
			}
		}
		for path, into := range map[string]any{"/pools": &byRole, "/backends": &page} {
			if err := json.Unmarshal([]byte(r.adminText(path)), into); err != nil {
				t.Fatal(err)
			}
		}
		inPools := append(byRole["prefill"], byRole["decode"]...)
		if len(inPools) != len(want) || len(page.Backends) != len(want) {
			t.Fatalf("%d in pools, %d backends, want %d", len(inPools), len(page.Backends), len(want))
		}
		for i := range want {
			for _, e := range []entry{inPools[i], page.Backends[i]} {
				if got := fmt.Sprint(e.Policy, " ", e.Weight, " ", e.GPUs); got != want[i] {
					t.Errorf("backend %d: %s, want %s", i, got, want[i])
				}
			}
			if m := page.Backends[i].Models; len(m) != 1 || m[0] != "sim" {
				t.Errorf("backend %d: models %q", i, m)
			}
		}
		if got := fmt.Sprint(page.PD); got != fmt.Sprint(pools.PD) {
			t.Errorf("pd %v, want %v", got, pools.PD)
		}
	}
	expect("prefix 1 0", "power_of_two 2.5 0", "power_of_two 1 0")
	pools.DecodePolicy, pools.PD.Mode = "random", router.PDNever
	pools.Decode = router.MustEntries(r.decode[1].URL()+" gpus=3", r.decode[0].URL())
	if err := r.server.Reload(pools); err != nil {
		t.Fatal(err)
	}
	expect("prefix 1 0", "random 3 3", "random 1 0")
}
