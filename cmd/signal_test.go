package cmd

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
	"xpyd/sim/faultnet"
)

// moment is a phase of a completion in which the engines can hold it up.
type moment struct {
	name    string
	phase   sim.Phase
	index   int
	cut     bool // requests to D and answers from it do not get through
	orphans int  // pins that no process can give back if the proxy is killed now
}

func moments() []moment {
	return []moment{
		{name: "P computes", phase: sim.PhasePrefillStart},
		{name: "P is about to answer", phase: sim.PhasePrefillEnding, orphans: 1},
		{name: "P has answered and D knows nothing", phase: sim.PhasePrefillAnswered, cut: true, orphans: 1},
		{name: "D has the request", phase: sim.PhaseDecodeReceived},
		{name: "D has the blocks", phase: sim.PhaseDecodeLoaded},
		{name: "D streams", phase: sim.PhaseStreamEvent, index: 3},
	}
}

// held is one completion through a proxy process, held up in its moment.
type held struct {
	*process
	prefill *sim.Engine
	relay   *faultnet.Relay // before D
	answer  chan error      // the client's error; nil for a whole answer
	release func()          // lets the completion go on
}

const heldPrompt = "a prompt of some forty bytes, ten tokens"

func hold(t *testing.T, m moment, lease time.Duration, args ...string) *held {
	t.Helper()
	reached, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook := func(e sim.Event) {
		if e.Phase != m.phase || e.Index != m.index {
			return
		}
		once.Do(func() { close(reached) })
		if !m.cut {
			<-released
		}
	}
	h := &held{answer: make(chan error, 1)}
	// P takes a tenth of a second, so that it can notice that its client has gone.
	h.prefill = startEngine(t, sim.Options{Name: "p", Role: sim.RolePrefill, Hook: hook, Lease: lease, PrefillTokensPerSecond: 100})
	d := startEngine(t, sim.Options{Name: "d", Role: sim.RoleDecode, Hook: hook})
	var err error
	if h.relay, err = faultnet.Listen(strings.TrimPrefix(d.URL(), "http://"), faultnet.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.relay.Close() })
	h.release = sync.OnceFunc(func() { close(released); h.relay.Thaw() })
	t.Cleanup(h.release) // also before the engines close
	h.process = serveProcess(t, urls(h.prefill), []string{h.relay.URL()}, append(args, "--warmup=false")...)
	if m.cut {
		h.relay.Freeze()
	}
	go func() {
		c := &client{addr: h.addr}
		_, err := c.ask(heldPrompt, 9, true)
		h.answer <- err
	}()
	h.awaitClosed(reached, "a completion in its moment")
	return h
}

// expectFreed waits until P holds nothing, and checks that n pins had to wait for the end of their
// lease.
func (h *held) expectFreed(n int) {
	h.t.Helper()
	eventually(h.t, "free of pinned blocks", func() bool { return h.prefill.Ledger().Pinned == 0 })
	if got := h.prefill.Ledger().FreedBy; got["lease"] != n {
		h.t.Errorf("freed by %v, want %d by the lease", got, n)
	}
}

const (
	draining = "draining; a second signal cuts what still runs, a third ends at once"
	cutting  = "told to cut the drain short; the requests left get an error"
)

func TestTermInEachMomentLosesNothing(t *testing.T) {
	t.Parallel()
	for _, m := range moments() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			h := hold(t, m, 0)
			h.process.signal(h.serving(1), syscall.SIGTERM)
			h.await(1, draining)
			h.release()
			if err := <-h.answer; err != nil {
				t.Error(err)
			}
			if code := h.exit(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			h.expectFreed(0)
		})
	}
}

func TestSecondTermCutsAndStillReleases(t *testing.T) {
	t.Parallel()
	for _, m := range moments() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			h := hold(t, m, 0)
			pid := h.serving(1)
			h.process.signal(pid, syscall.SIGTERM)
			h.await(1, draining)
			h.process.signal(pid, syscall.SIGTERM)
			h.await(1, cutting)
			if m.phase == sim.PhasePrefillEnding || m.cut {
				h.release() // otherwise no process could give the blocks back
			}
			if err := <-h.answer; err == nil || !strings.Contains(err.Error(), "shutting_down") {
				t.Errorf("the client got %v", err)
			}
			if code := h.exit(); code != exitFailure {
				t.Errorf("exit code %d", code)
			}
			h.release()
			h.expectFreed(0)
		})
	}
}

func TestKillStrandsOnlyWhatDecodeDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, m := range moments() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			lease := time.Duration(0) // the usual one, which must not end meanwhile
			if m.orphans > 0 {
				lease = 2 * time.Second // the test waits for its end
			}
			h := hold(t, m, lease)
			h.process.signal(h.serving(1), syscall.SIGKILL)
			h.exit()
			if m.cut {
				// What the relay holds or has not accepted must not reach D any more.
				if err := h.relay.Close(); err != nil {
					t.Fatal(err)
				}
			}
			h.release()
			if err := <-h.answer; err == nil {
				t.Error("the client got a whole answer")
			}
			h.expectFreed(m.orphans)
		})
	}
}

func TestThirdTermEndsAtOnce(t *testing.T) {
	t.Parallel()
	h := hold(t, moments()[0], 0, "--timeouts-prefill-abort-grace", "10s") // it must live until the third signal
	pid := h.serving(1)
	h.process.signal(pid, syscall.SIGTERM)
	h.await(1, draining)
	h.process.signal(pid, syscall.SIGTERM)
	h.await(1, cutting)
	h.process.signal(pid, syscall.SIGTERM)
	if code := h.exit(); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	h.gone()
	if got := strings.Join(h.others, "\n"); got != "xpyd: ended by a third signal" {
		t.Errorf("it said %q", got)
	}
	if err := <-h.answer; err == nil {
		t.Error("the client got a whole answer")
	}
}

// HUP and USR2 do not kill a process that drains, as they would by default.
func TestHupAndUsr2WhileDraining(t *testing.T) {
	t.Parallel()
	h := hold(t, moments()[5], 0)
	pid := h.serving(1)
	h.process.signal(pid, syscall.SIGTERM)
	h.await(1, draining)
	h.process.signal(pid, syscall.SIGHUP)
	h.process.signal(pid, syscall.SIGUSR2)
	h.release()
	if err := <-h.answer; err != nil {
		t.Error(err)
	}
	if code := h.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// While timeouts.drain_delay runs, the process is not ready but serves clients. It closes their
// connections after each answer.
func TestDrainDelayMovesKeptClientsAway(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, -1)
	p := serveProcess(t, urls(engP), urls(engD), "--timeouts-drain-delay", "5s") // in which all requests fit, even on a busy machine
	c := &client{addr: p.addr, kept: true}
	t.Cleanup(c.close)
	if closing, err := c.ask("before", 3, false); err != nil || closing {
		t.Fatalf("closing %v, %v", closing, err)
	}
	p.signal(p.serving(1), syscall.SIGTERM)
	p.await(1, draining)
	if status, _ := p.get(p.addr, "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readiness %d", status)
	}
	for _, stream := range []bool{false, true} {
		if closing, err := c.ask(fmt.Sprintf("stream %v", stream), 3, stream); err != nil || !closing {
			t.Errorf("closing %v, %v", closing, err)
		}
	}
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// An upload that does not end has no completion to lose: a drain answers it and ends as a success.
func TestTermWithASlowUpload(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, -1)
	p := serveProcess(t, urls(engP), urls(engD), "--timeouts-drain", "200ms")
	pid := p.serving(1)
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	eventually(t, "arrived", func() bool { return p.metric("xpyd_request_bytes_buffered") > 0 })
	p.signal(pid, syscall.SIGTERM)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the upload was answered %d", resp.StatusCode)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
