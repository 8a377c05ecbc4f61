package sick

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/cmd/ctl"
	"xpyd/engines/journal"
	"xpyd/sim"
	"xpyd/tools/completion"
	"xpyd/tools/process"
)

// ailment is one way to be sick, and what names it.
type ailment struct {
	name    string
	engines func(*sim.Options)                                  // changes each engine before it starts
	flags   func(*bed) ([]string, error)                        // more flags of xpyd serve
	plant   func(context.Context, *bed) (url string, err error) // makes an engine sick until ctx ends; url is the backend, "" for none

	says   string         // what a notice of the page says, beside the backend's URL
	kinds  []journal.Kind // one of these events names it
	metric string
	names  func(float64) bool // the value of the backend's series says it
	alert  string
	busy   bool // nothing may be named, and nobody is harmed but by waiting
	// within is the goal for the page and the events; 0: there is none.
	within time.Duration
	harms  int // the most requests that may be harmed; below 0: any number
}

func isZero(v float64) bool { return v == 0 }
func isOne(v float64) bool  { return v == 1 }
func below1(v float64) bool { return v < 1 }

// wedgedWithin is the time in which a wedged engine is named.
const wedgedWithin = 15 * time.Second

func ailments() []*ailment {
	return []*ailment{
		wedged("wedged prefill", func(b *bed) *sim.Engine { return b.prefill[0] }),
		wedged("wedged decode", func(b *bed) *sim.Engine { return b.decode[0] }),
		slow("slow prefill", "delay=400ms", func(b *bed) *sim.Engine { return b.prefill[0] }),
		slow("slow decode", "drip=100,80ms", func(b *bed) *sim.Engine { return b.decode[0] }),
		{
			name: "busy prefill", busy: true, plant: keepBusy,
			engines: func(o *sim.Options) { o.PrefillTokensPerSecond = 4000 },
		},
		{
			name: "flapping decode", says: "is down", kinds: []journal.Kind{journal.Down, journal.Ejected}, metric: "xpyd_backend_up", names: isZero, alert: "XpydEngineFlaps",
			plant: flap, harms: -1,
		},
		down("wrong host", "no such host", func(ctx context.Context, b *bed) (string, error) {
			return b.add(ctx, "http://nowhere.invalid:8000", sim.RoleDecode)
		}),
		down("TLS mismatch", "TLS", func(ctx context.Context, b *bed) (string, error) {
			return b.newcomer(ctx, sim.Options{}, "https://")
		}),
		down("expired certificate", "expired", func(ctx context.Context, b *bed) (string, error) {
			conf, err := b.ca.Expired()
			if err != nil {
				return "", err
			}
			return b.newcomer(ctx, sim.Options{TLS: conf}, "https://")
		}),
		{
			name: "full disk", says: "state_file", kinds: []journal.Kind{journal.StateFile}, metric: "xpyd_state_file_written", names: isZero, alert: "XpydStateFileNotWritten",
			flags: func(b *bed) ([]string, error) {
				dir, err := b.smallDisk()
				return []string{"--state-file", dir + "/members.json"}, err
			},
			plant: fillDisk,
		},
	}
}

func wedged(name string, pick func(*bed) *sim.Engine) *ailment {
	return &ailment{
		name: name, says: "hangs", kinds: []journal.Kind{journal.Wedged}, metric: "xpyd_backend_wedged", names: isOne, alert: "XpydEngineWedged",
		within: wedgedWithin,
		plant: func(_ context.Context, b *bed) (string, error) {
			e := pick(b)
			return e.URL(), e.SetFault(sim.Fault{Kind: sim.FaultHang})
		},
	}
}

func slow(name, fault string, pick func(*bed) *sim.Engine) *ailment {
	return &ailment{
		name: name, says: "slow", kinds: []journal.Kind{journal.Slow}, metric: "xpyd_backend_speed_ratio", names: below1, alert: "XpydEngineSlow",
		plant: func(_ context.Context, b *bed) (string, error) {
			f, err := sim.ParseFault(fault)
			if err != nil {
				return "", err
			}
			e := pick(b)
			return e.URL(), e.SetFault(f)
		},
	}
}

func down(name, says string, plant func(context.Context, *bed) (string, error)) *ailment {
	return &ailment{name: name, says: says, kinds: []journal.Kind{journal.Down}, metric: "xpyd_backend_up", names: isZero, alert: "XpydDecodeDown", plant: plant}
}

// newcomer starts a decode engine and adds it with a scheme.
func (b *bed) newcomer(ctx context.Context, o sim.Options, scheme string) (string, error) {
	o.Name, o.Role, o.Model = "newcomer", sim.RoleDecode, completion.Model
	e, err := sim.Start(o)
	if err != nil {
		return "", err
	}
	b.more = append(b.more, e)
	return b.add(ctx, scheme+e.Addr(), sim.RoleDecode)
}

// These are the times of an engine that comes and goes.
const (
	flapAway = 5 * time.Second
	flapBack = 10 * time.Second
)

// flap has a decode engine refuse connections for a while, again and again.
func flap(ctx context.Context, b *bed) (string, error) {
	e := b.decode[0]
	go func() {
		for {
			_ = e.SetFault(sim.Fault{Kind: sim.FaultRefuse}) // its port is its own
			over := process.Sleep(ctx, flapAway) != nil
			_ = e.SetFault(sim.Fault{})
			if over || process.Sleep(ctx, flapBack) != nil {
				return
			}
		}
	}()
	return e.URL(), nil
}

// keepBusy has the prefill engines do what could be taken for a fault: prompts of a minute, two hundred requests at once, a stall
// of 15 s, and an engine that stands still for 4 s, as SIGSTOP has it.
func keepBusy(ctx context.Context, b *bed) (string, error) {
	stall, err := sim.ParseFault("delay=15s")
	if err != nil {
		return "", err
	}
	stall.Count = 1 // beside others, and the canary
	steps := []func(){
		func() { b.load.wg.Go(func() { b.load.visit(ctx, "long", strings.Repeat("word", 200_000)) }) },
		func() {
			for i := range 200 {
				b.load.wg.Go(func() { b.load.visit(ctx, fmt.Sprint("crowd-", i), "") })
			}
		},
		func() { _ = b.prefill[1].SetFault(stall) },
		func() {
			b.prefill[2].Freeze()
			_ = process.Sleep(ctx, 4*time.Second)
			b.prefill[2].Thaw()
		},
	}
	b.load.wg.Go(func() {
		for n := 0; ; n++ {
			steps[n%len(steps)]()
			if process.Sleep(ctx, 15*time.Second) != nil {
				return
			}
		}
	})
	return "", nil
}

// smallDisk mounts a disk of 256 KiB.
func (b *bed) smallDisk() (string, error) {
	dir := b.path("disk")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		return "", fmt.Errorf("mount a small disk, which needs root: %w", err)
	}
	b.undo = append(b.undo, func() error { return unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, nil
}

// fillDisk fills the disk of the state file, and drains an engine, which cannot be kept then.
func fillDisk(ctx context.Context, b *bed) (string, error) {
	junk, err := os.Create(b.path("disk/junk"))
	if err != nil {
		return "", err
	}
	for err == nil {
		_, err = junk.Write(make([]byte, 4096))
	}
	_ = junk.Close()
	if _, err := b.ctl.Patch(ctx, b.decode[0].URL(), ctl.Change{State: new("drain")}); err == nil {
		return "", fmt.Errorf("a change was kept on a full disk")
	}
	return "", nil
}
