package sim_test

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

const completionsPath = "/v1/completions"

// release is the request that gives a handle back because it is rejected.
func release(handle json.RawMessage) body {
	return body{"model": "sim", "prompt": "a", "max_tokens": 0, "kv_transfer_params": handle}
}

// rawClient is a client that can leave at any moment. It has sent its request
// when send returns.
type rawClient struct {
	t  *testing.T
	nc *net.TCPConn
}

func send(t *testing.T, e *sim.Engine, path string, b body) rawClient {
	t.Helper()
	return sendWith(t, e, path, b, "")
}

// sendClosing sends a request. After its answer the engine ends the connection.
func sendClosing(t *testing.T, e *sim.Engine, b body) rawClient {
	t.Helper()
	return sendWith(t, e, completionsPath, b, "Connection: close\r\n")
}

func sendWith(t *testing.T, e *sim.Engine, path string, b body, header string) rawClient {
	t.Helper()
	raw, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	head := "POST " + path + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: raw-1\r\n" + header + "Content-Type: application/json\r\nContent-Length: "
	if _, err := nc.Write([]byte(head + itoa(len(raw)) + "\r\n\r\n" + string(raw))); err != nil {
		t.Fatal(err)
	}
	return rawClient{t: t, nc: nc.(*net.TCPConn)}
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func (c rawClient) leave() {
	c.t.Helper()
	if err := c.nc.Close(); err != nil {
		c.t.Fatal(err)
	}
}

func (c rawClient) halfClose() {
	c.t.Helper()
	if err := c.nc.CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// readAll reads until the engine ends the connection.
func (c rawClient) readAll() string {
	c.t.Helper()
	var all strings.Builder
	b := make([]byte, 4096)
	_ = c.nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		n, err := c.nc.Read(b)
		all.Write(b[:n])
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				c.t.Fatal("the engine did not end the connection")
			}
			return all.String()
		}
	}
}

// barrier holds requests of one engine in one phase.
type barrier struct {
	engine  string
	phase   sim.Phase
	reached chan struct{}
	pass    chan struct{}
}

func newBarrier(engine string, phase sim.Phase) *barrier {
	return &barrier{engine: engine, phase: phase, reached: make(chan struct{}, 64), pass: make(chan struct{})}
}

func (b *barrier) hook(ev sim.Event) {
	if ev.Engine == b.engine && ev.Phase == b.phase {
		b.reached <- struct{}{}
		<-b.pass
	}
}

func prefillBody(b body) body {
	return b.with("max_tokens", 1).with("kv_transfer_params", json.RawMessage(prefillFlags))
}

func TestNobodyComesFreesByLease(t *testing.T) {
	p, _ := pair(t, sim.Options{Lease: 60 * time.Millisecond})
	begin := time.Now()
	prefill(t, p, completionsPath, textBody)
	awaitFreed(t, p, "lease", 1)
	if took := time.Since(begin); took < 60*time.Millisecond {
		t.Errorf("freed after %v, before the lease ended", took)
	}
}

func TestDrainByOneTokenFreesByRead(t *testing.T) {
	p, d := pair(t, sim.Options{})
	handle := prefill(t, p, completionsPath, textBody)
	status, answer := post(t, d.URL()+completionsPath, textBody.with("max_tokens", 1).with("kv_transfer_params", handle))
	if status != http.StatusOK || text(t, answer) != sim.Text(textBody["prompt"].(string), 1) {
		t.Errorf("drain: %d %s", status, answer)
	}
	awaitFreed(t, p, "read", 1)
}

func TestRejectionReleases(t *testing.T) {
	edits := []struct {
		name   string
		edit   func(body) body
		status int
	}{
		{"max_tokens 0", func(b body) body { return b.with("max_tokens", 0) }, 400},
		{"max_tokens -1", func(b body) body { return b.with("max_tokens", -1) }, 400},
		{"max_tokens above the model's length", func(b body) body { return b.with("max_tokens", 1<<40) }, 400},
		{"min_tokens above max_tokens", func(b body) body { return b.with("min_tokens", 99) }, 400},
		{"temperature", func(b body) body { return b.with("temperature", -1) }, 400},
		{"top_p", func(b body) body { return b.with("top_p", 1.5) }, 400},
		{"unknown model", func(b body) body { return b.with("model", "nope") }, 404},
		{"the release request", func(b body) body { return release(b["kv_transfer_params"].(json.RawMessage)) }, 400},
	}
	for _, path := range []string{completionsPath, "/v1/chat/completions"} {
		b := textBody
		if path != completionsPath {
			b = chatBody
		}
		for _, tc := range edits {
			t.Run(path+" "+tc.name, func(t *testing.T) {
				p, d := pair(t, sim.Options{})
				handle := prefill(t, p, path, b)
				target := path
				if tc.name == "the release request" {
					target = completionsPath
				}
				status, answer := post(t, d.URL()+target, tc.edit(b.with("kv_transfer_params", handle)))
				if status != tc.status {
					t.Fatalf("%d %s, want %d", status, answer, tc.status)
				}
				awaitFreed(t, p, "reject", 1)
			})
		}
	}
}

func TestRequestModelFailureDoesNotRelease(t *testing.T) {
	edits := map[string]func(body) body{
		"wrong type":                    func(b body) body { return b.with("max_tokens", "a") },
		"null where none may be":        func(b body) body { return b.with("min_tokens", nil) },
		"stream_options without stream": func(b body) body { return b.with("stream_options", body{"include_usage": true}) },
		"kv_transfer_params a string":   func(b body) body { return b.with("kv_transfer_params", "x") },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			p, d := pair(t, sim.Options{Lease: 150 * time.Millisecond})
			handle := prefill(t, p, completionsPath, textBody)
			if status, answer := post(t, d.URL()+completionsPath, edit(textBody.with("kv_transfer_params", handle))); status != 400 {
				t.Fatalf("%d %s, want 400", status, answer)
			}
			awaitFreed(t, p, "lease", 1)
		})
	}
}

func TestOldEnginesDoNotRelease(t *testing.T) {
	p, d := pair(t, sim.Options{Version: "0.20.2", Lease: 100 * time.Millisecond})
	handle := prefill(t, p, completionsPath, textBody)
	if status, _ := post(t, d.URL()+completionsPath, release(handle)); status != 400 {
		t.Fatalf("status %d, want 400", status)
	}
	awaitFreed(t, p, "lease", 1)
}

func TestReleaseNeedsNoSlot(t *testing.T) {
	hold := newBarrier("d1", sim.PhaseDecodeLoaded)
	p, d := pair(t, sim.Options{MaxSeqs: 1, Hook: hold.hook})
	first := prefill(t, p, completionsPath, textBody)
	second := prefill(t, p, completionsPath, textBody)
	c := send(t, d, completionsPath, textBody.with("kv_transfer_params", first))
	<-hold.reached
	if status, _ := post(t, d.URL()+completionsPath, release(second)); status != 400 {
		t.Fatalf("status %d, want 400", status)
	}
	await(t, "freed by reject while the engine is full", func() bool { return p.Ledger().FreedBy["reject"] == 1 })
	close(hold.pass)
	c.leave()
}

func TestReleaseToADeadPrefillEngine(t *testing.T) {
	for version, dies := range map[string]bool{"0.32.0": false, "0.31.2": true, "0.30.0": true, "0.28.0": false} {
		t.Run(version, func(t *testing.T) {
			p, d := pair(t, sim.Options{Version: version})
			handle := prefill(t, p, completionsPath, textBody)
			p.Kill()
			if status, _ := post(t, d.URL()+completionsPath, release(handle)); status != 400 {
				t.Fatalf("status %d, want 400", status)
			}
			if dies {
				await(t, "dead", func() bool {
					resp, err := http.Get(d.URL() + "/health")
					return err != nil || resp.Body.Close() != nil
				})
				return
			}
			await(t, "tried to tell", func() bool { return gauge(t, d, "vllm:nixl_num_failed_notifications_total") == 1 })
			expectAlive(t, d)
		})
	}
}

func TestDecodeClientLeaves(t *testing.T) {
	for _, tc := range []struct {
		phase sim.Phase
		by    string
	}{{sim.PhaseDecodeReceived, "abort"}, {sim.PhaseDecodeLoaded, "read"}, {sim.PhaseStreamEvent, "read"}} {
		t.Run(string(tc.phase), func(t *testing.T) {
			hold := newBarrier("d1", tc.phase)
			p, d := pair(t, sim.Options{Hook: hold.hook, TokenLatency: 20 * time.Millisecond})
			handle := prefill(t, p, completionsPath, textBody)
			c := send(t, d, completionsPath, textBody.with("stream", true).with("kv_transfer_params", handle))
			<-hold.reached
			c.leave()
			close(hold.pass)
			awaitFreed(t, p, tc.by, 1)
			awaitOutcome(t, d, "aborted")
		})
	}
}

func TestDecodeClientLeavesAtOnceOrWhileItLoads(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		t.Run(wait.String(), func(t *testing.T) {
			for perBlock := 100 * time.Millisecond; ; perBlock *= 2 { // until the client leaves before the end of the transfer
				p, d := pair(t, sim.Options{TransferPerBlock: perBlock})
				handle := prefill(t, p, completionsPath, textBody)
				c := send(t, d, completionsPath, textBody.with("kv_transfer_params", handle))
				time.Sleep(wait) // this moment is what the case is about, and no event marks it
				c.leave()
				var by map[string]int
				await(t, "blocks free", func() bool { l := p.Ledger(); by = l.FreedBy; return l.Pinned == 0 && len(by) > 0 })
				if by["abort"] == 1 {
					return
				}
				if by["read"] != 1 || perBlock > time.Second {
					t.Fatalf("freed by %v, want abort", by)
				}
			}
		})
	}
}

func TestDecodeClientLeavesTheQueue(t *testing.T) {
	hold := newBarrier("d1", sim.PhaseDecodeLoaded)
	p, d := pair(t, sim.Options{MaxSeqs: 1, Hook: hold.hook})
	first := prefill(t, p, completionsPath, textBody)
	second := prefill(t, p, completionsPath, textBody)
	running := send(t, d, completionsPath, textBody.with("kv_transfer_params", first))
	<-hold.reached
	queueing := send(t, d, completionsPath, textBody.with("kv_transfer_params", second))
	await(t, "a request queues", func() bool { return gauge(t, d, "vllm:num_requests_waiting") == 1 })
	queueing.leave()
	await(t, "freed by abort", func() bool { return p.Ledger().FreedBy["abort"] == 1 })
	close(hold.pass)
	running.leave()
}

func TestPrefillClientLeaves(t *testing.T) {
	leave := map[string]func(rawClient){"close": rawClient.leave, "half-close": rawClient.halfClose}
	for name, end := range leave {
		t.Run("computing/"+name, func(t *testing.T) {
			hold := newBarrier("p1", sim.PhasePrefillStart)
			p, _ := pair(t, sim.Options{Hook: hold.hook})
			c := send(t, p, completionsPath, prefillBody(textBody))
			<-hold.reached
			end(c)
			close(hold.pass)
			awaitOutcome(t, p, "aborted")
			if l := p.Ledger(); l.Pinned != 0 || len(l.Entries) != 0 {
				t.Errorf("%d blocks pinned, %d entries, want none", l.Pinned, len(l.Entries))
			}
		})
		t.Run("last moments/"+name, func(t *testing.T) {
			hold := newBarrier("p1", sim.PhasePrefillEnding)
			p, _ := pair(t, sim.Options{Hook: hold.hook, Lease: 200 * time.Millisecond})
			c := send(t, p, completionsPath, prefillBody(textBody))
			<-hold.reached
			end(c)
			close(hold.pass)
			awaitOutcome(t, p, "stranded")
			if len(p.Ledger().Entries) == 0 { // its blocks may be free by now
				t.Error("nothing was stranded")
			}
			if name == "half-close" {
				if got := c.readAll(); got != "" {
					t.Errorf("an answer after the half-close: %q", got)
				}
			}
			awaitFreed(t, p, "lease", 1)
		})
	}
}

func TestPrefillClientLeavesALongComputation(t *testing.T) {
	p, _ := pair(t, sim.Options{PrefillTokensPerSecond: 1}) // the prompt's 10 tokens would take 10 s
	c := send(t, p, completionsPath, prefillBody(textBody))
	await(t, "it runs", func() bool { return gauge(t, p, "vllm:num_requests_running") == 1 })
	c.leave()
	awaitOutcome(t, p, "aborted")
	if l := p.Ledger(); len(l.Entries) != 0 {
		t.Errorf("pinned: %+v", l.Entries)
	}
}

func TestOnlyTheFirstChoiceGetsAHandle(t *testing.T) {
	cases := map[string]body{
		"n=2":         textBody.with("n", 2).with("temperature", 1),
		"prompt list": textBody.with("prompt", []string{"one prompt of a few blocks", "another prompt"}),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			for lease := 300 * time.Millisecond; ; lease *= 2 { // until the release comes before its end
				p, d := pair(t, sim.Options{Lease: lease})
				handle := prefill(t, p, completionsPath, b)
				if n := len(p.Ledger().Entries); n != 2 {
					t.Fatalf("%d entries, want 2", n)
				}
				if status, _ := post(t, d.URL()+completionsPath, release(handle)); status != 400 {
					t.Fatalf("status %d, want 400", status)
				}
				var by map[string]int
				await(t, "both free", func() bool { by = p.Ledger().FreedBy; return by["reject"]+by["lease"] == 2 })
				if by["reject"] == 1 {
					return
				}
				if by["reject"] == 2 || lease > 3*time.Second {
					t.Fatalf("freed by %v, want one by reject, one by lease", by)
				}
			}
		})
	}
}

func TestStreamedPrefillGivesNoHandle(t *testing.T) {
	p, _ := pair(t, sim.Options{Lease: 100 * time.Millisecond})
	_, answer := post(t, p.URL()+completionsPath, prefillBody(textBody).with("stream", true))
	if strings.Contains(string(answer), "kv_transfer_params") || !strings.Contains(string(answer), "[DONE]") {
		t.Errorf("answer %s", answer)
	}
	awaitFreed(t, p, "lease", 1)
}

func TestHeartbeatsKeepAQueueingHandleAlive(t *testing.T) {
	lease := 900 * time.Millisecond // a heartbeat may be 600 ms late
	for !heartbeatsKeep(t, lease) {
		if lease *= 2; lease > 8*time.Second {
			t.Fatal("freed by lease, though heartbeats may be seconds late")
		}
	}
}

// heartbeatsKeep reports whether a handle that queues outlives two leases.
func heartbeatsKeep(t *testing.T, lease time.Duration) bool {
	t.Helper()
	hold := newBarrier("d1", sim.PhaseDecodeLoaded)
	p, d := pair(t, sim.Options{MaxSeqs: 1, Hook: hold.hook, Lease: lease})
	first := prefill(t, p, completionsPath, textBody)
	running := send(t, d, completionsPath, textBody.with("kv_transfer_params", first))
	<-hold.reached
	second := prefill(t, p, completionsPath, textBody)
	queueing := send(t, d, completionsPath, textBody.with("kv_transfer_params", second))
	entry := func() sim.Entry { all := p.Ledger().Entries; return all[len(all)-1] }
	await(t, "two leases have passed", func() bool { return time.Since(entry().PinnedAt) > 2*lease })
	if e := entry(); e.FreedBy == "" && !e.LeaseUntil.After(e.PinnedAt.Add(lease)) {
		t.Errorf("entry %+v, want it alive by heartbeats", e)
	}
	close(hold.pass)
	running.leave()
	queueing.leave()
	await(t, "free", func() bool { return p.Ledger().Pinned == 0 })
	return p.Ledger().FreedBy["lease"] == 0
}

// awaitOutcome waits for a request that ended like this.
func awaitOutcome(t *testing.T, e *sim.Engine, outcome string) {
	t.Helper()
	await(t, e.Name()+" had a request "+outcome, func() bool {
		for _, r := range e.Requests() {
			if r.Outcome == outcome {
				return true
			}
		}
		return false
	})
}

func expectAlive(t *testing.T, e *sim.Engine) {
	t.Helper()
	resp, err := http.Get(e.URL() + "/health")
	if err != nil {
		t.Fatalf("%s is dead: %v", e.Name(), err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != 200 {
		t.Errorf("health of %s: %d, %v", e.Name(), resp.StatusCode, err)
	}
}
