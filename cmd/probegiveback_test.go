package cmd

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/cmd/config"
	"xpyd/router"
	"xpyd/sim"
)

func startSim(t *testing.T, o sim.Options) *sim.Engine {
	t.Helper()
	e, err := sim.Start(o.Fast())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// expectFreed waits until prefill has no block pinned, and checks how they were freed.
func expectFreed(t *testing.T, prefill *sim.Engine, by string) {
	t.Helper()
	l := prefill.Ledger()
	for deadline := time.Now().Add(patience); l.Pinned != 0 && time.Now().Before(deadline); l = prefill.Ledger() {
		time.Sleep(time.Millisecond)
	}
	if l.Pinned != 0 || l.FreedBy[by] == 0 {
		t.Errorf("the prefill engine has %d blocks pinned, freed by %v; want %s", l.Pinned, l.FreedBy, by)
	}
}

// Decode cannot use the handle, but no block may stay pinned because of it.
func TestCheckProbeGivesBackWhatDecodeCannotReach(t *testing.T) {
	for _, tc := range []struct{ version, release, by string }{
		{"0.32.0", "auto", "reject"},
		{"0.31.2", "auto", "read"}, // here decode can reach prefill
		{"0.32.0", "off", ""},
	} {
		prefill := startSim(t, sim.Options{Role: "prefill", Version: tc.version})
		decode := startSim(t, sim.Options{Role: "decode", Version: tc.version})
		c := config.Default()
		// The check takes this for another host. No name server knows it.
		c.Router.Prefill, c.Router.Decode = router.MustEntries(prefill.URL()), router.MustEntries("http://decode.example:8000")
		c.KV.Release = tc.release
		p := newEngineProber(c, &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == "decode.example:8000" {
				addr = strings.TrimPrefix(decode.URL(), "http://")
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}, DisableKeepAlives: true})
		p.run(context.Background())
		faults := strings.Join(p.faults, "\n")
		if !strings.Contains(faults, `remote_host is "127.0.0.1", which decode on another host cannot reach`) {
			t.Errorf("%+v: faults %s", tc, faults)
		}
		if waits := strings.Contains(faults, "wait for prefill's lease"); waits != (tc.by == "") {
			t.Errorf("%+v: faults %s", tc, faults)
		}
		if tc.by != "" {
			expectFreed(t, prefill, tc.by)
		}
	}
}

func TestCheckProbeGivesBackWhatDecodeDidNotPull(t *testing.T) {
	t.Parallel()
	prefill := startSim(t, sim.Options{Role: "prefill"})
	plain, decode := startSim(t, sim.Options{Role: "both"}), startSim(t, sim.Options{Role: "decode"})
	out, err := runCheck("--probe", "--prefill", prefill.URL(), "--decode", plain.URL(), "--decode", decode.URL())
	if err == nil || !strings.Contains(out, "decode answered without pulling the blocks") {
		t.Errorf("got %v\n%s", err, out)
	}
	expectFreed(t, prefill, "reject")
	out, err = runCheck("--probe", "--prefill", prefill.URL(), "--decode", plain.URL())
	if err == nil || !strings.Contains(out, "the blocks of this round wait for prefill's lease") {
		t.Errorf("nobody can free the blocks: got %v\n%s", err, out)
	}
}

func TestCheckProbeRewritesALoopbackHostAsServeDoes(t *testing.T) {
	prefill, decode := startSim(t, sim.Options{Role: "prefill"}), startSim(t, sim.Options{Role: "decode"})
	out, err := runCheck("--probe", "--prefill", strings.Replace(prefill.URL(), "127.0.0.1", "localhost", 1), "--decode", decode.URL(), "--kv-rewrite-loopback", "--kv-allow-hosts=127.0.0.1")
	if err != nil || !strings.HasSuffix(out, "\nok\n") {
		t.Errorf("got %v\n%s", err, out)
	}
	expectFreed(t, prefill, "read")
	var hosts []string
	for _, rec := range decode.Requests() {
		if rec.RemoteHost != "" {
			hosts = append(hosts, rec.RemoteHost)
		}
	}
	if len(hosts) != 1 || hosts[0] != "localhost" {
		t.Errorf("decode got the hosts %q, want prefill's own", hosts)
	}
}

func TestCheckProbeSaysThatDecodeKeepsBlocks(t *testing.T) {
	prefill := startSim(t, sim.Options{Role: "prefill"})
	decode := startSim(t, sim.Options{Role: "decode", Bidirectional: true})
	out, err := runCheck("--probe", "--prefill", prefill.URL(), "--decode", decode.URL())
	if err != nil || strings.Count(out, "note: decode "+decode.URL()+" keeps the blocks of each answer") != 1 || !strings.Contains(out, "without bidirectional_kv_xfer") {
		t.Errorf("got %v\n%s", err, out)
	}
}
