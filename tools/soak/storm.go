package soak

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"xpyd/sim"
	"xpyd/sim/faultnet"
	"xpyd/tools/process"
)

// storm draws the faults of a run, in stageFaults.
type storm struct {
	s    *soak
	r    *rand.Rand
	wg   sync.WaitGroup // faults that last
	mu   sync.Mutex
	busy map[*station]bool
	deck []string // kinds of the next faults

	dropped  string // URL that a reload has removed from its pool, or ""
	kills    int
	reloads  int
	handOver int
}

// These are the times between two of a kind.
const (
	killEvery     = 30 * time.Second
	reloadEvery   = 20 * time.Second
	handOverEvery = 5 * time.Minute
)

// chore is what recurs in addition to the random faults.
type chore struct {
	every time.Duration
	next  time.Time
	until time.Time // zero if as long as the faults
	do    func(context.Context)
}

// run ends when the stage has had its time and each chore its turn. Everything that it has done is
// then undone.
func (st *storm) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := st.s.o.Duration
	end := st.s.plan.end(stageFaults)
	st.s.plan.faultsBegin()
	defer st.s.plan.faultsEnd()
	chores := []*chore{
		{every: 0, do: st.fault},
		{every: min(killEvery, d/8), do: st.kill},
		{every: min(reloadEvery, d/10), do: st.reload},
		// This is not done in the second half, because the memory of the last process is watched
		// there.
		{every: min(handOverEvery, d/12), do: st.replace, until: st.s.plan.begin.Add(d / 2)},
	}
	for _, c := range chores {
		c.next = time.Now().Add(c.every / 2)
	}
	for ctx.Err() == nil {
		c := slices.MinFunc(chores, func(a, b *chore) int { return a.next.Compare(b.next) })
		if st.eachWasDone() && c.next.After(end) {
			process.SleepUntil(ctx, end)
			break
		}
		if !process.SleepUntil(ctx, c.next) {
			break
		}
		c.do(ctx)
		c.next = time.Now().Add(c.every)
		if c.every == 0 {
			c.next = time.Now().Add(st.pause())
		}
		if !c.until.IsZero() && c.next.After(c.until) {
			chores = slices.DeleteFunc(chores, func(o *chore) bool { return o == c })
		}
	}
	cancel() // ends what still lasts
	st.wg.Wait()
	st.calm()
}

// eachWasDone reports that there was a kill, a reload of each result and a hand-over.
func (st *storm) eachWasDone() bool {
	return st.kills > 0 && st.reloads >= refuseEvery && st.handOver > 0
}

// pause returns the time between two random faults, 0.5 to 5 s.
func (st *storm) pause() time.Duration {
	return time.Duration(500+st.r.IntN(4500)) * time.Millisecond
}

// calm removes the scripts from connections that still have them, and restores the pools.
func (st *storm) calm() {
	for _, s := range st.s.fleet.all() {
		s.relay.Always(faultnet.Script{})
		st.reset(s)
	}
	if st.dropped != "" {
		st.dropped = ""
		st.putInForce(context.Background(), st.s.settings(nil, nil))
	}
}

// reset breaks off all connections to a station.
func (st *storm) reset(s *station) {
	st.s.faults.close(st.s.faults.open(s.Name(), kindReset, "", 0))
	s.relay.ResetAll()
}

// take reserves a station without a fault. One of each pool is left alone.
func (st *storm) take() *station {
	st.mu.Lock()
	defer st.mu.Unlock()
	pool := st.s.fleet.prefill
	if st.r.IntN(2) == 0 {
		pool = st.s.fleet.decode
	}
	free := slices.DeleteFunc(slices.Clone(pool), func(s *station) bool { return st.busy[s] })
	if len(free) <= 1 {
		return nil
	}
	s := free[st.r.IntN(len(free))]
	st.busy[s] = true
	return s
}

func (st *storm) give(s *station) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.busy, s)
}

// last does something to a station in the background for a while, and then undoes it.
func (st *storm) last(ctx context.Context, s *station, kind, text string, d time.Duration, do, undo func() error) {
	f := st.s.faults.open(s.Name(), kind, text, d)
	if err := do(); err != nil {
		st.s.verdict.Breach(invHarness, "a fault that could not be injected", "%s %s on %s: %v", kind, text, s.Name(), err)
	}
	st.wg.Go(func() {
		process.SleepUntil(ctx, time.Now().Add(d))
		if err := undo(); err != nil {
			st.s.verdict.Breach(invHarness, "a fault that could not be undone", "%s %s on %s: %v", kind, text, s.Name(), err)
		}
		st.s.faults.close(f)
		st.give(s)
	})
}

// draw takes the next kind of fault from the deck.
func (st *storm) draw() string {
	if len(st.deck) == 0 {
		st.deck = deck()
		st.r.Shuffle(len(st.deck), func(i, j int) { st.deck[i], st.deck[j] = st.deck[j], st.deck[i] })
	}
	kind := st.deck[0]
	st.deck = st.deck[1:]
	return kind
}

// fault injects a random fault.
func (st *storm) fault(ctx context.Context) {
	s := st.take()
	if s == nil {
		return
	}
	kind := st.draw()
	text, d := drawFault(st.r, kind, s.role)
	if st.s.certs != nil && strings.HasPrefix(text, "down:corrupt@") {
		text = fmt.Sprintf("down:corrupt@%d", st.r.IntN(12_000)) // TLS sees it anywhere
	}
	none := func() error { return nil }
	switch kind {
	case kindScript:
		st.script(ctx, s, text, d)
	case kindReset:
		st.last(ctx, s, kind, "", d, func() error { s.relay.ResetAll(); return nil }, none)
	case kindRefuse:
		st.last(ctx, s, kind, "", d, func() error { return s.relay.Refuse(true) }, func() error { return s.relay.Refuse(false) })
	case kindPartition:
		st.last(ctx, s, kind, "", d, func() error { s.relay.Freeze(); return nil }, func() error { s.relay.Thaw(); return nil })
	case kindFreeze, kindLongFreeze:
		st.last(ctx, s, kindFreeze, "", d, func() error { s.Freeze(); return nil }, func() error { s.Thaw(); return nil })
	default:
		st.misbehave(ctx, s, text, d)
	}
}

// script makes the relay do something to each new connection. Half of the time the open ones are
// broken off first, so that there are many new ones.
func (st *storm) script(ctx context.Context, s *station, text string, d time.Duration) {
	script, err := faultnet.Parse(text)
	if err != nil {
		panic("BUG: a script that cannot be read: " + err.Error())
	}
	fresh := st.r.IntN(2) == 0
	st.last(ctx, s, kindScript, text, d, func() error {
		s.relay.Always(script)
		if fresh {
			st.reset(s)
		}
		return nil
	}, func() error { s.relay.Always(faultnet.Script{}); return nil })
}

// misbehave makes the engine spoil its answers.
func (st *storm) misbehave(ctx context.Context, s *station, text string, d time.Duration) {
	f, err := sim.ParseFault(text)
	if err != nil {
		panic("BUG: a fault that cannot be read: " + err.Error())
	}
	if f.Count = 1 + st.r.IntN(12); f.Kind == sim.FaultRandom {
		f.Count = 0 // it draws which requests it hits
	}
	st.last(ctx, s, "sim "+f.Kind, text, d, func() error { return s.SetFault(f) }, func() error { return s.SetFault(sim.Fault{}) })
}

// kill ends an engine and restarts it after a while. Meanwhile its port refuses connections half of
// the time. Otherwise it accepts and resets them, like a balancer.
func (st *storm) kill(ctx context.Context) {
	s := st.take()
	if s == nil {
		return
	}
	st.kills++
	refuses := st.r.IntN(2) == 0
	d := time.Duration(500+st.r.IntN(5500)) * time.Millisecond
	seen := make(chan legCount, 1)
	st.last(ctx, s, kindKill, fmt.Sprintf("refuses %v", refuses), d, func() error {
		s.kill()
		at := time.Now()
		st.wg.Go(func() {
			if d > killSeen && process.SleepUntil(ctx, at.Add(killSeen)) {
				seen <- st.legsTo(s)
			}
		})
		if refuses {
			return s.relay.Refuse(true)
		}
		return nil
	}, func() error {
		select {
		case before := <-seen:
			st.strayed(before, st.legsTo(s))
		default: // it was not dead long enough
		}
		if err := s.restart(); err != nil {
			return err
		}
		return s.relay.Refuse(false)
	})
}

// killSeen is the time after which the proxy must have noticed that an engine is dead: five
// failures in a row, or three checks that are 300 ms apart.
const killSeen = 3 * time.Second

// legCount is how many legs a process of the proxy has ended on one backend.
type legCount struct{ legs, begun float64 }

func (st *storm) legsTo(s *station) (c legCount) {
	_, admin, _ := st.s.proxy.now()
	series, err := process.Series(context.Background(), admin)
	if err != nil {
		return c // a process that has handed over meanwhile
	}
	for name, n := range series {
		if strings.HasPrefix(name, "xpyd_leg_requests_total{") && strings.Contains(name, s.url()) {
			c.legs += n
		}
	}
	c.begun = series["process_start_time_seconds"]
	return c
}

// strayed files the legs that went to an engine that had been dead for long.
func (st *storm) strayed(before, after legCount) {
	if before.begun == 0 || before.begun != after.begun {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.s.deaths++
	st.s.strays = max(st.s.strays, int(after.legs-before.legs))
}

// refuseEvery is the number of reloads of which one has a file that must be refused.
const refuseEvery = 4

// reload changes the pools: their order, one backend less, or that one back. Now and then it uses a
// file that must be refused.
func (st *storm) reload(ctx context.Context) {
	st.reloads++
	if st.reloads%refuseEvery == 0 {
		st.mustRefuse(ctx)
		return
	}
	shuffle := func(urls []string) []string {
		urls = slices.Clone(urls)
		st.r.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
		return urls
	}
	prefill, decode := shuffle(relayURLs(st.s.fleet.prefill)), shuffle(relayURLs(st.s.fleet.decode))
	if st.dropped != "" {
		st.dropped = ""
	} else if st.r.IntN(2) == 0 {
		st.dropped, prefill = prefill[0], prefill[1:]
	} else {
		st.dropped, decode = decode[0], decode[1:]
	}
	st.putInForce(ctx, st.s.settings(prefill, decode))
}

// putInForce reloads, and checks that the proxy reports it.
func (st *storm) putInForce(ctx context.Context, settings map[string]any) {
	if err := st.reloadWith(ctx, settings, "ok"); err != nil {
		st.s.verdict.Breach(invHealth, "a reload that did not come into force", "%v", err)
	}
}

func (st *storm) mustRefuse(ctx context.Context) {
	settings := maps.Clone(st.s.inForce)
	settings["no_such_key"] = true
	good := st.s.inForce
	err := st.reloadWith(ctx, settings, "failed")
	if err == nil {
		err = st.s.proxy.configure(good) // for the next process
		st.s.inForce = good
	}
	if err != nil {
		st.s.verdict.Breach(invHealth, "a reload that should have been refused", "%v", err)
	}
}

// reloadWith counts the reload as a fault and waits until the proxy has counted it.
func (st *storm) reloadWith(ctx context.Context, settings map[string]any, result string) error {
	// A reload that was begun is finished, although the stage may be over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadBound)
	defer cancel()
	st.s.faults.close(st.s.faults.open("proxy", "reload "+result, "", 0))
	_, admin, _ := st.s.proxy.now()
	name := `xpyd_config_reloads_total{result="` + result + `"}`
	before, err := process.Series(ctx, admin)
	if err != nil {
		return err
	}
	if err := st.s.proxy.configure(settings); err != nil {
		return err
	}
	st.s.inForce = settings
	pid, _, _ := st.s.proxy.now()
	if err := st.s.proxy.signal(pid, syscall.SIGHUP); err != nil {
		return err
	}
	for ctx.Err() == nil {
		after, err := process.Series(ctx, admin)
		if err == nil && after[name] > before[name] {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s stays at %g for %v", strings.TrimSuffix(name, `"}`), before[name], reloadBound)
}

const reloadBound = 5 * time.Second

// replace hands the ports over to a new process.
func (st *storm) replace(ctx context.Context) {
	st.s.faults.close(st.s.faults.open("proxy", "hand-over", "", 0))
	st.handOver++
	if err := st.s.proxy.handOver(context.WithoutCancel(ctx)); err != nil {
		st.s.verdict.Breach(invOutcomes, "a hand-over that failed", "%v", err)
	}
}
