package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"xpyd/admin/desk"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

func (r *rig) failures() (f desk.Failures) {
	r.t.Helper()
	text := r.adminText("/failures")
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		r.t.Fatalf("%v in %s", err, text)
	}
	return f
}

// GET /failures has the completions that failed, by code and engine, with their ids, and neither their prompts nor what
// the clients did wrong.
func TestFailuresAreKept(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode = router.PDAlways }, config: func(c *proxy.Config) { c.APIKeys = []string{"k"} }})
	key := []string{"Authorization", "Bearer k", "X-Request-Id"}
	const secret = "the launch code is 0000"
	c := forms(secret, 4)[0]
	r.expectWhole(c, r.call(c, append(key, "well")...))
	r.post("/v1/completions", `{"model":"sim"`, append(key, "wrong")...)
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultCut, Leg: "D", At: 2}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r.call(c, append(key, fmt.Sprint("cut", i))...)
	}
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultStatus, Value: http.StatusInternalServerError, Leg: "D"}); err != nil {
		t.Fatal(err)
	}
	r.call(c, append(key, "status")...)
	r.await("kept", func() bool { return r.failures().Total == 4 })
	f := r.failures()
	if len(f.Groups) != 1 || f.Groups[0].Count != 4 || f.Groups[0].Code != "decode_failed" || f.Groups[0].Backend != r.decode[0].URL() || f.Groups[0].First > f.Groups[0].Last {
		t.Errorf("groups %+v", f.Groups)
	}
	if len(f.Failures) != 4 || f.Failures[0].ID != "status" || f.Failures[3].ID != "cut0" {
		t.Fatalf("failures %+v", f.Failures)
	}
	for _, e := range f.Failures {
		if e.Model != "sim" || e.Key == "" || e.Prefill != r.prefill[0].URL() || e.Decode != r.decode[0].URL() || e.Error == "" || len(e.Phases) < 4 || e.Status == 0 {
			t.Errorf("%+v", e)
		}
		if !strings.Contains(r.logs.String(), `"request_id":"`+e.ID+`"`) {
			t.Errorf("the log has no line with the id %s", e.ID)
		}
	}
	if strings.Contains(r.adminText("/failures"), secret[:10]) {
		t.Error("the page shows a prompt")
	}
}
