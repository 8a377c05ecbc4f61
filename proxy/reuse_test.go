package proxy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"xpyd/router"
	"xpyd/sim"
)

// TestNothingPulledIsTold: decode hides that no transfer succeeds. Each answer is right, each took
// both legs, and the prefill pool works for nothing. The log says so once, and once that it is over.
func TestNothingPulledIsTold(t *testing.T) {
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { polled(c); c.PD.Mode = router.PDAlways },
		engine: func(o *sim.Options) { o.LoadFailure = "recompute" },
	})
	asked := 0
	reuse := func() (a router.Reuse) {
		var page struct{ Reuse router.Reuse }
		if err := json.Unmarshal([]byte(r.adminText("/advice")), &page); err != nil {
			t.Fatal(err)
		}
		return page.Reuse
	}
	const begins, ends = "decode engine pulls nothing", "decode engine pulls blocks again"
	untilLogged := func(line string) {
		r.await(line, func() bool {
			asked++
			c := call{prompt: fmt.Sprintf("prompt %d %s", asked, strings.Repeat("of some blocks ", 20)), tokens: 1}
			r.expectWhole(c, r.call(c))
			return strings.Contains(r.logs.String(), line)
		})
	}
	untilLogged("completion")
	if u := reuse(); len(u.NothingPulled) != 0 {
		t.Errorf("%+v", u)
	}
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: "engine"}); err != nil {
		t.Fatal(err)
	}
	untilLogged(begins)
	if u := reuse(); !slices.Equal(u.NothingPulled, []string{r.decode[0].URL()}) || r.metric("xpyd_backend_nothing_pulled") != 1 {
		t.Errorf("%+v, and the metric is %v", u, r.metric("xpyd_backend_nothing_pulled"))
	}
	for range 40 {
		untilLogged("completion")
	}
	if err := r.prefill[0].SetFault(sim.Fault{}); err != nil {
		t.Fatal(err)
	}
	untilLogged(ends)
	u := reuse()
	if len(u.NothingPulled) != 0 || r.metric("xpyd_backend_nothing_pulled") != 0 {
		t.Errorf("%+v, and the metric is %v", u, r.metric("xpyd_backend_nothing_pulled"))
	}
	if u.PulledTokens <= 0 || u.PulledTokens >= u.PromptTokens || u.Ratio != float64(u.PulledTokens)/float64(u.PromptTokens) {
		t.Errorf("%+v, want a part pulled", u)
	}
	if got := r.metric("xpyd_reuse_ratio"); got <= 0 || got >= 1 {
		t.Errorf("the ratio is %v", got)
	}
	if n, m := strings.Count(r.logs.String(), begins), strings.Count(r.logs.String(), ends); n != 1 || m != 1 {
		t.Errorf("the log says %d times that it began and %d times that it ended", n, m)
	}
}
