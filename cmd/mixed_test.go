package cmd

import (
	"fmt"
	"strings"
	"testing"

	"xpyd/sim"
)

// A process serves engines of one connector. A pair of another one joins under load and leaves again.
func TestAPairOfAnotherConnectorJoinsUnderLoad(t *testing.T) {
	t.Parallel()
	engine := func(name string, role sim.Role, c sim.Connector) *sim.Engine {
		return startEngine(t, sim.Options{Name: name, Role: role, Connector: c, TokenLatency: 1, MaxSeqs: 256})
	}
	p1, d1 := engine("p1", sim.RolePrefill, sim.ConnectorNixl), engine("d1", sim.RoleDecode, sim.ConnectorNixl)
	p2, d2 := engine("p2", sim.RolePrefill, sim.ConnectorMooncake), engine("d2", sim.RoleDecode, sim.ConnectorMooncake)
	// To name the connector that all have changes nothing.
	p := serveProcess(t, []string{p1.URL() + " connector=nixl"}, urls(d1), "--health-slow-start", "0s", "--health-interval", "100ms")
	l := startTraffic(p.addr, 8)
	eventually(t, "p1 is used", func() bool { return p1.Ledger().FreedBy["read"] > 0 })
	if out, err := p.ctl("ctl", "add", p2.URL(), "--role", "prefill", "--connector", "mooncacke"); err == nil || !strings.Contains(err.Error()+out, "must have one of the connectors nixl") {
		t.Errorf("%v %s", err, out)
	}
	p.operate("ctl", "add", p2.URL(), "--role", "prefill", "--connector", "mooncake", "--bootstrap", fmt.Sprint(p2.BootstrapPort()))
	p.operate("ctl", "add", d2.URL(), "--role", "decode", "--connector", "mooncake")
	eventually(t, "p2 is used", func() bool { return p2.Ledger().FreedBy["read"] > 0 })
	if _, page := p.get(p.admin, "/backends"); strings.Count(page, `"connector": "mooncake"`) < 2 || strings.Count(page, `"connector": "nixl"`) != 1 {
		t.Errorf("GET /backends shows\n%s", page)
	}
	if n := p.metric(`xpyd_backend_connector_info{backend="` + d2.URL() + `",connector="mooncake",role="decode"}`); n != 1 {
		t.Errorf("xpyd_backend_connector_info of %s: %v", d2.URL(), n)
	}
	if out := p.operate("status"); strings.Count(out, "connector mooncake") != 2 {
		t.Errorf("xpyd status shows\n%s", out)
	}
	p.operate("ctl", "remove", d2.URL(), p2.URL(), "--wait")
	l.more(t, 40)
	l.end(t)
	for _, e := range []*sim.Engine{p1, p2} {
		eventually(t, e.Name()+" free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
		if got := e.Ledger(); got.Pinned != 0 || got.FreedBy["lease"] != 0 || got.StaleReads != 0 {
			t.Errorf("%s: %d blocks pinned, %v, %d stale reads", e.Name(), got.Pinned, got.FreedBy, got.StaleReads)
		}
	}
}
