package cmd

import (
	"encoding/json"
	"strings"
	"testing"

	"xpyd/sim"
)

func TestAdviceOverTheAdminPort(t *testing.T) {
	t.Parallel()
	p1, d1 := startEngine(t, sim.Options{Role: sim.RolePrefill}), startEngine(t, sim.Options{Role: sim.RoleDecode})
	p := serveProcess(t, urls(p1), urls(d1))
	l := startTraffic(p.addr, 2)
	l.more(t, 8)
	l.end(t)
	out := ""
	eventually(t, "the decode engine's load is known", func() bool {
		out = p.operate("advice", "--ttft", "60000")
		return strings.HasPrefix(out, "with TTFT p90 ≤ 60 s: 1:1 up to ")
	})
	for _, want := range []string{"\nPOOL     ENGINES  BALANCED  LOAD", "\nprefill  1        1 ", "\ndecode   1        1 ", "\nPRICE OF"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var page struct {
		Prefill struct{ Requests int }
		Short   string
	}
	if out := p.operate("advice", "--json"); json.Unmarshal([]byte(out), &page) != nil || page.Prefill.Requests == 0 || page.Short == "" {
		t.Errorf("%s", out)
	}
	if _, err := p.ctl("advice", "--ttft", "soon"); err == nil || err.Error() != `ttft="soon": want a time up to an hour, such as 500ms` {
		t.Error(err)
	}
}
