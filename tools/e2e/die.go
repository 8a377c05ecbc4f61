package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// In the check die, engines are killed and frozen in every phase of a completion, and started
// again. A request ends right, if need be on another engine, or with a well-formed error. It never
// ends with another text.

const (
	dieEach     = 8 // requests of a scene
	dieRecover  = 20 * time.Second
	dieLogged   = 10 * time.Second
	dieRelease  = 10 * time.Second // until blocks are free, well below the lease of 30 s
	dieLong     = 1900             // tokens that take P a while
	dieStreamed = 900              // tokens of a stream that is still under way when its engine dies; a step may take 1 ms
)

// mortals are two pairs, of which the first prefill and the second decode engine die. The first
// decode engine fails requests whose blocks it cannot load. The second one computes them.
type mortals struct {
	t       *trial
	p, d    [2]*engine
	rp      *relay    // before p[0]
	rd      [2]*relay // before d
	x       *proxy
	patient *proxy // over p[0] and d[0], without health checks
	scenes  map[string][]*teller
	stale   *hold
	late    *sync.WaitGroup // the client of stale
	before  int             // lines of x's log when P was killed
	killed  time.Time       // P was
	lost    [2]float64      // blocks that d may have lost by what the connector's row says
}

func die(ctx context.Context, t *trial) error {
	m := &mortals{t: t, scenes: map[string][]*teller{}}
	defer m.close()
	if err := m.assemble(ctx); err != nil {
		return err
	}
	if err := m.rehearse(ctx); err != nil {
		return err
	}
	for _, scene := range []func(context.Context) error{m.freezePrefill, m.killPrefill, m.killDecode, m.restart, m.settle} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rehearse learns the right answer to each request from an engine that works alone. It is the
// prefill engine that survives, whose own cache does not matter.
func (m *mortals) rehearse(ctx context.Context) error {
	m.cast("frozen", dieEach, 300, 12)
	m.cast("between", dieEach, 300, 12)
	m.cast("computing", m.long(), dieLong, 6)
	m.cast("streaming", dieEach, 60, dieStreamed)
	m.cast("waiting", dieEach, 300, 12)
	m.cast("stale", 1, 300, 12)
	m.cast("after", dieEach, 200, 12)
	for name, tellers := range m.scenes {
		alone := make([]*teller, len(tellers))
		for i, t := range tellers {
			alone[i] = &teller{id: t.id, ask: t.ask}
		}
		tellAll(ctx, m.p[1].url, alone).Wait()
		for i, t := range alone {
			if t.status != 200 || t.broke || t.text == "" {
				return fmt.Errorf("the engine that works alone fails at %q: %v", name, t)
			}
			tellers[i].want = t.text
		}
	}
	// xpyd gives a pair its share only after a transfer of its own over that pair.
	return m.usedAgain(ctx, time.Now(), served{"prefill", m.rp.url}, served{"prefill", m.p[1].url},
		served{"decode", m.rd[0].url}, served{"decode", m.rd[1].url})
}

// long is how many requests have long prompts. Where the legs start together, decode engines have blocks for all of
// them at once, and after P's end once more.
func (m *mortals) long() int {
	if m.t.fleet.opts.kv.together {
		return dieEach / 2
	}
	return dieEach
}

// cast writes the requests of a scene: both APIs, streamed and not.
func (m *mortals) cast(scene string, n, size, tokens int) {
	for i := range n {
		a := ask{chat: i%2 == 0, stream: i/2%2 == 0 || tokens == dieStreamed, prompt: randomPrompt(size + i), tokens: tokens}
		m.scenes[scene] = append(m.scenes[scene], &teller{id: fmt.Sprintf("die-%s-%d", scene, i), ask: a})
	}
}

// assemble makes room for four engines, because no more may run at a time.
func (m *mortals) assemble(ctx context.Context) error {
	if err := newEngine(m.t.fleet, plainEngine()).stop(ctx); err != nil {
		return err
	}
	second := decodeEngine(2)
	second.policy = "recompute"
	engines, err := m.t.fleet.all(ctx, prefillEngine(1), prefillEngine(2), decodeEngine(1), second)
	if err != nil {
		return err
	}
	if err := idle(ctx, engines...); err != nil {
		return err
	}
	m.p, m.d = [2]*engine(engines[:2]), [2]*engine(engines[2:])
	if m.rp, err = newRelay(m.p[0]); err != nil {
		return err
	}
	for i, e := range m.d {
		if m.rd[i], err = newRelay(e); err != nil {
			return err
		}
	}
	kv := m.t.fleet.opts.kv
	// A check a second, so that a frozen engine is found within a few.
	m.x, err = m.t.fleet.proxy(ctx, "--prefill", kv.prefill(m.rp.url, m.p[0])+","+kv.prefill(m.p[1].url, m.p[1]), "--decode", m.rd[0].url+","+m.rd[1].url,
		"--health-interval", "1s", "--health-suspect-interval", "500ms", "--health-fall", "2", "--health-rise", "1", "--health-slow-start", "0s")
	if err != nil {
		return err
	}
	m.patient, err = m.t.fleet.proxy(ctx, "--prefill", kv.prefill(m.p[0].url, m.p[0]), "--decode", m.rd[0].url, "--health-interval", "10m")
	return err
}

func (m *mortals) close() {
	for _, r := range []*relay{m.rp, m.rd[0], m.rd[1]} {
		if r != nil {
			r.close()
		}
	}
}

// between sends the requests of a scene and returns when each has been prefilled and waits
// before its decode engine. Where the legs start together, the prefill may still run when the decode leg is there.
func (m *mortals) between(ctx context.Context, x *proxy, scene string) (*sync.WaitGroup, func(), error) {
	holds := make([][2]*hold, 0, dieEach)
	for _, t := range m.scenes[scene] {
		holds = append(holds, [2]*hold{m.rd[0].hold(stepRequest, t.id), m.rd[1].hold(stepRequest, t.id)})
	}
	prefilled := prefills(x)
	group := tellAll(ctx, x.url, m.scenes[scene])
	let := func() {
		for _, h := range holds {
			h[0].let()
			h[1].let()
		}
	}
	for i, h := range holds {
		if err := awaitAny(ctx, h[0], h[1]); err != nil {
			let()
			return group, let, fmt.Errorf("bring %s between its legs: %w", m.scenes[scene][i].id, err)
		}
	}
	if err := awaitPrefills(ctx, x, prefilled+float64(len(holds))); err != nil {
		let()
		return group, let, fmt.Errorf("%s: %w", scene, err)
	}
	return group, let, nil
}

// awaitPrefills waits until so many prefill legs of an xpyd have been answered.
func awaitPrefills(ctx context.Context, x *proxy, n float64) error {
	if err := poll(ctx, stepTime, func() bool { return prefills(x) >= n }); err != nil {
		return fmt.Errorf("%v prefill legs are answered, not %v: %w", prefills(x), n, err)
	}
	return nil
}

// prefills is how many prefill legs of an xpyd have been answered.
func prefills(x *proxy) float64 {
	n, _ := x.metric("xpyd_leg_requests_total", `leg="prefill"`, `outcome="ok"`) // what cannot be read has not grown
	return n
}

// freezePrefill stops P between the legs. D asks it for blocks and waits without a limit.
func (m *mortals) freezePrefill(ctx context.Context) error {
	group, let, err := m.between(ctx, m.x, "frozen")
	if err != nil {
		return err
	}
	if err := m.p[0].signal(syscall.SIGSTOP); err != nil {
		return err
	}
	start := time.Now()
	let()
	group.Wait()
	m.t.say("P frozen between the legs: all answered after %.1f s", time.Since(start).Seconds())
	if err := m.p[0].signal(syscall.SIGCONT); err != nil {
		return err
	}
	thawed := time.Now()
	met := m.again
	if !m.t.fleet.opts.kv.names() {
		met = m.orphaned // the blocks lie where D finds them without P
	}
	if err := m.review(ctx, "frozen", met, true); err != nil {
		return err
	}
	m.noteLost("frozen", m.x.lines())
	if err := m.allFree(ctx, "P thawed"); err != nil {
		return err
	}
	if m.t.fleet.opts.kv.together {
		thawed = time.Now() // P's blocks may have waited for their time limit
	}
	return m.usedAgain(ctx, thawed, served{"prefill", m.rp.url})
}

// killPrefill kills P while it computes for some requests, has computed for others, and one
// more waits to be decoded when P is back with another engine id.
func (m *mortals) killPrefill(ctx context.Context) error {
	stale := m.scenes["stale"][0]
	m.stale = m.rd[0].hold(stepRequest, stale.id)
	prefilled := prefills(m.patient)
	m.late = tellAll(ctx, m.patient.url, m.scenes["stale"])
	if err := errors.Join(awaitAny(ctx, m.stale, m.stale), awaitPrefills(ctx, m.patient, prefilled+1)); err != nil {
		return fmt.Errorf("bring %s between its legs: %w", stale.id, err)
	}
	group, let, err := m.between(ctx, m.x, "between")
	if err != nil {
		return err
	}
	computing := tellAll(ctx, m.x.url, m.scenes["computing"])
	err = poll(ctx, stepTime, func() bool {
		for _, t := range m.scenes["computing"] {
			if len(m.rp.times(stepRequest, t.id)) > 0 {
				return true
			}
		}
		return false
	})
	if err != nil {
		return errors.New("no work reaches P")
	}
	m.before = len(m.x.lines())
	m.rp.shut()
	if err := m.p[0].signal(syscall.SIGKILL); err != nil {
		return err
	}
	m.killed = time.Now()
	let()
	group.Wait()
	computing.Wait()
	if err := m.review(ctx, "between", m.orphaned, true); err != nil {
		return err
	}
	return m.review(ctx, "computing", m.met, !m.t.fleet.opts.kv.together)
}

// streams reports that the decode engine that is to die has streams, each of which has begun. Those of the other one may begin
// when these have ended.
func (m *mortals) streams() bool {
	n := 0
	for _, t := range m.scenes["streaming"] {
		if len(m.rd[1].times(stepRequest, t.id)) == 0 {
			continue
		}
		if n++; t.events.Load() < 3 {
			return false
		}
	}
	return n > 0
}

// killDecode kills D while it streams for some requests and has just got others.
func (m *mortals) killDecode(ctx context.Context) error {
	streams := tellAll(ctx, m.x.url, m.scenes["streaming"])
	if err := poll(ctx, stepTime, m.streams); err != nil {
		return errors.New("no stream of the decode engine that is to die begins")
	}
	// D is frozen first, because it must not answer what it gets now.
	if err := m.d[1].signal(syscall.SIGSTOP); err != nil {
		return err
	}
	waiting := tellAll(ctx, m.x.url, m.scenes["waiting"])
	for _, t := range m.scenes["waiting"] {
		err := poll(ctx, stepTime, func() bool {
			return len(m.rd[0].times(stepRequest, t.id))+len(m.rd[1].times(stepRequest, t.id)) > 0
		})
		if err != nil {
			return fmt.Errorf("%s comes to no decode engine", t.id)
		}
	}
	m.rd[1].shut()
	if err := m.d[1].signal(syscall.SIGKILL); err != nil {
		return err
	}
	streams.Wait()
	waiting.Wait()
	if err := m.review(ctx, "streaming", m.brokenOff, false); err != nil {
		return err
	}
	return m.review(ctx, "waiting", m.met, !m.t.fleet.opts.kv.together)
}
