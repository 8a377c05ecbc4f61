package cmd

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
)

// poolFile is a configuration file whose pools the test changes.
type poolFile struct {
	t    *testing.T
	path string
}

func newPoolFile(t *testing.T, prefill, decode []string) *poolFile {
	t.Helper()
	f := &poolFile{t, writeFile(t, "xpyd.yaml", "", 0o600)}
	f.pools(prefill, decode)
	return f
}

func (f *poolFile) pools(prefill, decode []string) {
	f.text(fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nprefill_policy: round_robin\ndecode_policy: round_robin\nprefill: [%s]\ndecode: [%s]\n",
		strings.Join(prefill, ","), strings.Join(decode, ",")))
}

// text replaces the file as a whole, as editors and config maps do.
func (f *poolFile) text(s string) {
	f.t.Helper()
	if err := os.WriteFile(f.path+".new", []byte(s), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		f.t.Fatal(err)
	}
}

// reload sends HUP and waits for a reload with this result.
func (p *process) reload(result string) {
	p.t.Helper()
	series := `xpyd_config_reloads_total{result="` + result + `"}`
	before := p.metric(series)
	p.signal(p.serving(1), syscall.SIGHUP)
	eventually(p.t, "reloaded with "+result, func() bool { return p.metric(series) > before })
}

// expectPools compares GET /pools with the expected backends.
func (p *process) expectPools(backends ...string) {
	p.t.Helper()
	_, text := p.get(p.admin, "/pools")
	if n := strings.Count(text, `"url"`); n != len(backends) {
		p.t.Errorf("%d backends, want %d: %s", n, len(backends), text)
	}
	for _, b := range backends {
		if !strings.Contains(text, `"`+b+`"`) {
			p.t.Errorf("no %s in %s", b, text)
		}
	}
}

func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	engine := func(name string, role sim.Role) *sim.Engine {
		return startEngine(t, sim.Options{Name: name, Role: role, TokenLatency: time.Millisecond, MaxSeqs: 256})
	}
	p1, p2, p3 := engine("p1", sim.RolePrefill), engine("p2", sim.RolePrefill), engine("p3", sim.RolePrefill)
	d1, d2, d3 := engine("d1", sim.RoleDecode), engine("d2", sim.RoleDecode), engine("d3", sim.RoleDecode)
	file := newPoolFile(t, urls(p1), urls(d1))
	p := startSelf(t, "serve", "--config", file.path)
	p.serving(1)
	p.awaitReady()
	l := startTraffic(p.addr, 12)
	streams := longStreams(t, p.addr, 4, 1000) // through engines that leave
	for _, pools := range []struct{ prefill, decode []*sim.Engine }{
		{[]*sim.Engine{p1, p2}, []*sim.Engine{d1}},     // a P joins
		{[]*sim.Engine{p1, p2}, []*sim.Engine{d1, d2}}, // a D joins
		{[]*sim.Engine{p2}, []*sim.Engine{d1, d2}},     // a P in use leaves
		{[]*sim.Engine{p2}, []*sim.Engine{d2}},         // a D in use leaves
		{[]*sim.Engine{p3}, []*sim.Engine{d3}},         // all engines are new
	} {
		file.pools(urls(pools.prefill...), urls(pools.decode...))
		p.reload("ok")
		p.expectPools(append(urls(pools.prefill...), urls(pools.decode...)...)...)
		l.more(t, 60)
	}
	for _, bad := range []string{"prefill: [", "listn: nowhere\n", "decode: []\n", "decode: [ftp://x]\n"} {
		file.text(bad)
		p.reload("failed")
		p.expectPools(p3.URL(), d3.URL())
	}
	l.more(t, 60)
	l.end(t)
	for i, s := range streams {
		if err := <-s; err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	for _, e := range []*sim.Engine{p1, p2, p3} {
		if n := len(e.Requests()); n == 0 {
			t.Errorf("%s was asked for nothing", e.Name())
		}
		eventually(t, e.Name()+" free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
		if got := e.Ledger(); got.Pinned != 0 || got.FreedBy["lease"] != 0 || got.StaleReads != 0 {
			t.Errorf("%s: %d blocks pinned, %v, %d stale reads", e.Name(), got.Pinned, got.FreedBy, got.StaleReads)
		}
	}
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}

// A thousand HUPs come without a pause, then hundreds of reloads one after the other. The last file is
// in force, no request fails, and nothing piles up.
func TestManyReloads(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	p2 := startEngine(t, sim.Options{Name: "p2", Role: sim.RolePrefill})
	d2 := startEngine(t, sim.Options{Name: "d2", Role: sim.RoleDecode})
	file := newPoolFile(t, urls(p1, p2), urls(d1, d2))
	p := startSelf(t, "serve", "--config", file.path, "--timeouts-upstream-idle", "200ms", "--timeouts-idle", "8s") // no client rests for as long, on a busy machine too
	pid := p.serving(1)
	eventually(t, "all up", func() bool { return p.metric("xpyd_backend_up") == 4 })
	goroutines, descriptors := p.metric("go_goroutines"), p.metric("process_open_fds")
	l := startTraffic(p.addr, 4)
	const burst, series = 1000, 300
	for n := range burst + series {
		if n%2 == 0 {
			file.pools(urls(p1), urls(d2))
		} else {
			file.pools(urls(p1, p2), urls(d1, d2))
		}
		before := p.count(reloaded)
		p.signal(pid, syscall.SIGHUP)
		if n >= burst {
			p.await(before+1, reloaded)
		}
	}
	p.reload("ok")
	p.expectPools(urls(p1, p2, d1, d2)...)
	l.end(t)
	ok, failed := p.metric(`xpyd_config_reloads_total{result="ok"}`), p.metric(`xpyd_config_reloads_total{result="failed"}`)
	if ok < series || failed != 0 {
		t.Errorf("%v reloads, %v failed", ok, failed)
	}
	t.Logf("%v reloads", ok)
	// A few more than before are fine. Checks and warm-ups run, and connections are kept for a while.
	eventually(t, "back at the goroutines and descriptors of before", func() bool {
		return p.metric("go_goroutines") <= goroutines+8 && p.metric("process_open_fds") <= descriptors+8
	})
	p.signal(pid, syscall.SIGTERM)
	p.gone()
}

const reloaded = "pools reloaded"
