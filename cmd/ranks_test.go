package cmd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"xpyd/cmd/config"
	"xpyd/sim"
)

// What the configuration refuses of data-parallel ranks is refused at run time, too.
func TestRanksThatCannotBeAdded(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	refusals := func(p *process, add, role, want string) {
		t.Helper()
		before := strings.Join(append(p.poolOf("prefill"), p.poolOf("decode")...), ", ")
		if out, err := p.ctl("ctl", "add", add, "--role", role); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", add, out, err, want)
		}
		if after := strings.Join(append(p.poolOf("prefill"), p.poolOf("decode")...), ", "); after != before {
			t.Errorf("%s: %s, was %s", add, after, before)
		}
	}
	p := serveProcess(t, urls(p1), urls(d1))
	refusals(p, d1.URL()+"@0", "decode", d1.URL()+" are the same engine, once with a rank and once without; give all of its ranks, or none")
	refusals(p, d1.URL()+"@0", "prefill", "is in both pools; keep it in one, or name it once as an engine without a role")
	refusals(p, d1.URL()+"@3..1", "decode", "the lower first")
	status, text := p.send("POST", "/backends", `{"url":"http://127.0.0.1:9@0..7","role":"decode"}`)
	if status != 400 || !strings.Contains(text, "is 8 backends; add each rank by itself, as http://127.0.0.1:9@0, or all of them with xpyd ctl add") {
		t.Errorf("status %d: %s", status, text)
	}
	p.operate("ctl", "add", "http://127.0.0.1:9@0", "--role", "decode", "--state", "disabled")
	refusals(p, "http://127.0.0.1:9", "decode", "once with a rank and once without")
	refusals(p, "http://127.0.0.1:9@1", "prefill", "is in both pools")
	p.operate("ctl", "add", "http://127.0.0.1:9@1", "--role", "decode", "--state", "disabled")
	if out, err := p.ctl("ctl", "role", "127.0.0.1:9@1", "prefill"); err == nil || !strings.Contains(err.Error(), "is in both pools") {
		t.Errorf("a rank without the others has changed its role: %q, %v", out, err)
	}

	p = serveProcess(t, urls(p1), urls(d1), "--headers-pass", "x-data-parallel-rank")
	refusals(p, "http://127.0.0.1:9@0", "decode", `headers.pass: "x-data-parallel-rank" is written by xpyd where backends are ranks`)
}

// A state file with a rank that the configuration does not allow stops the start, and says why.
func TestStateFileWithARankThatCannotBe(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "members.json")
	text := `{"version":1,"edits":[{"url":"http://127.0.0.1:8@1","added":true,"role":"decode"}]}`
	if err := os.WriteFile(state, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	root := newRootCmd()
	root.SetArgs([]string{"serve", "--state-file", state, "--prefill", "http://127.0.0.1:7", "--decode", "http://127.0.0.1:8", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"})
	err := root.ExecuteContext(t.Context())
	if wrong := (config.UsageError{}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "once with a rank and once without") || !strings.Contains(err.Error(), "move the file away") {
		t.Errorf("%v", err)
	}
}

// All ranks of an engine join, drain and leave by one name.
func TestRanksJoinAndLeaveTogether(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	var ranks []*sim.Engine
	for range 2 {
		ranks = append(ranks, startEngine(t, sim.Options{Role: sim.RoleDecode, TokenLatency: time.Millisecond}))
	}
	front, err := sim.StartRanks(urls(ranks...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = front.Close() })
	host := strings.TrimPrefix(front.URL(), "http://")
	p := serveProcess(t, urls(p1), urls(d1), "--health-slow-start", "0s", "--decode-policy", "round_robin")
	p.operate("ctl", "add", front.URL()+"@0..1", "--role", "decode")
	p.expectPool("decode", d1.URL()+" ready 1", front.URL()+"@0 ready 1", front.URL()+"@1 ready 1")
	l := startTraffic(p.addr, 4)
	eventually(t, "both ranks are used", func() bool { return asked(ranks[0], time.Time{}) > 0 && asked(ranks[1], time.Time{}) > 0 })
	if out := p.operate("ctl", "drain", host+"@0..1", "--wait"); !strings.Contains(out, front.URL()+"@0, "+front.URL()+"@1: drained") {
		t.Errorf("ctl drain says %q", out)
	}
	p.operate("ctl", "remove", host+"@0..1", "--wait")
	l.more(t, 20)
	l.end(t)
	p.expectPool("decode", d1.URL()+" ready 1")
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}
