package proxy_test

import (
	"net/http"
	"testing"

	"xpyd/kvparams"
	"xpyd/sim"
)

// moriioOf is a pair, with a second decode engine if it has a release.
func moriioOf(t *testing.T, releases ...string) *rig {
	t.Helper()
	d, _ := kvparams.Lookup("moriio")
	turn := 0
	return newRig(t, rigOptions{dialect: d, decode: len(releases), router: inTurn, engine: func(o *sim.Options) {
		o.Version = releases[0]
		if o.Role == sim.RoleDecode {
			o.Version = releases[turn]
			turn++
		}
	}})
}

// Since vLLM 0.33 MoRIIO's decode engines in read mode compute a prompt without a handle. Before that they would decode
// on blocks without KV.
func TestMoriioServesAloneByItsRelease(t *testing.T) {
	together(t)
	bodies := map[string]string{
		"n":               `{"model":"sim","prompt":"a b c","n":2,"temperature":1,"max_tokens":2}`,
		"prompt_list":     `{"model":"sim","prompt":["a b c","d e f"],"max_tokens":2}`,
		"prompt_logprobs": `{"model":"sim","prompt":"a b c","prompt_logprobs":1,"max_tokens":2}`,
	}
	for _, release := range []string{"0.32.0", "0.33.0", "0.34.1.dev3+rocm"} {
		t.Run(release, func(t *testing.T) {
			r := moriioOf(t, release)
			for reason, body := range bodies {
				a := r.post("/v1/completions", body)
				switch {
				case release == "0.32.0" && (a.status != 400 || a.code() != "unsupported_parameter"):
					t.Errorf("%s: %d %s", reason, a.status, a.body)
				case release != "0.32.0" && (a.status != 200 || pathOf(a) != "decode_only "+reason):
					t.Errorf("%s: %d %s %s", reason, a.status, pathOf(a), a.body)
				}
			}
			r.faultPrefill(sim.Fault{Kind: sim.FaultRefuse})
			a := r.call(forms(prompt, 3)[0])
			switch {
			case release == "0.32.0" && a.status != 503:
				t.Errorf("%d %s", a.status, a.body)
			case release != "0.32.0":
				r.expectWhole(forms(prompt, 3)[0], a)
			}
			for _, q := range r.decode[0].Requests() {
				if q.WrongKV {
					t.Errorf("decoded on blocks without KV: %+v", q)
				}
			}
			if ready := r.send(http.MethodGet, "/readyz", ""); ready.status != 200 && release != "0.32.0" {
				t.Errorf("/readyz: %d %s", ready.status, ready.body)
			}
		})
	}
}

// Of a pool with both releases, only the later engine gets what has no handle.
func TestMoriioOfTwoReleasesServesAloneWhereItCan(t *testing.T) {
	r := moriioOf(t, "0.32.0", "0.33.0")
	for range 6 {
		if a := r.post("/v1/completions", `{"model":"sim","prompt":"a b c","n":2,"temperature":1,"max_tokens":2}`); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if old, later := len(r.decode[0].Requests()), len(r.decode[1].Requests()); old != 0 || later != 6 {
		t.Errorf("the engine of 0.32 got %d requests without a handle, and that of 0.33 %d", old, later)
	}
}
