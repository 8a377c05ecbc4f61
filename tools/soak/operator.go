package soak

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"xpyd/cmd/ctl"
	"xpyd/sim"
	"xpyd/tools/process"
)

// operator drains, weighs, removes and adds backends over the admin port, one at a time, in all stages
// of a run. In the calm ones no request may fail by it.
type operator struct {
	s    *soak
	r    *rand.Rand
	done int // turns
}

const (
	operateEvery = 4 * time.Second  // mean time between two turns
	operateLast  = 10 * time.Second // before the end, when the last turn may begin
	operateBound = 30 * time.Second // of what must happen in a turn
)

// run ends when what it has changed is undone.
func (o *operator) run(ctx context.Context) {
	for {
		pause := operateEvery/2 + time.Duration(o.r.Int64N(int64(operateEvery)))
		if !process.SleepUntil(ctx, time.Now().Add(pause)) || time.Now().After(o.s.plan.end(stageRecovery).Add(-operateLast)) {
			break
		}
		if st := o.choose(ctx); st != nil {
			o.turn(ctx, st)
		}
	}
	if o.done == 0 && ctx.Err() == nil && o.s.o.Duration > operateLast+operateBound { // in less, there may be no time for a turn
		o.s.verdict.Breach(invHarness, "nobody changed the pools over the admin port", "in %v", o.s.o.Duration)
	}
	if s, err := o.status(ctx); err == nil && s.Edits > 0 {
		o.s.verdict.Breach(invHarness, "changes that were not undone", "%d edits", s.Edits)
	}
}

func (o *operator) client() (*ctl.Client, error) {
	_, admin, _ := o.s.proxy.now()
	return ctl.New("http://"+admin, "", nil)
}

func (o *operator) status(ctx context.Context) (ctl.Status, error) {
	c, err := o.client()
	if err != nil {
		return ctl.Status{}, err
	}
	return c.Status(ctx)
}

// choose returns an engine whose pool can do without it, or nil.
func (o *operator) choose(ctx context.Context) *station {
	all := o.s.fleet.all()
	st := all[o.r.IntN(len(all))]
	s, err := o.status(ctx)
	if err != nil {
		return nil // a process that has handed over meanwhile
	}
	here, others := false, 0
	for _, b := range s.Backends {
		switch {
		case b.URL == st.url():
			here = b.AdminState == "ready"
		case b.Role == string(st.role) && b.AdminState == "ready":
			others++
		}
	}
	if !here || others == 0 {
		return nil
	}
	return st
}

// turn changes something about the engine, and undoes it. A turn that was begun is finished.
func (o *operator) turn(ctx context.Context, st *station) {
	ctx = context.WithoutCancel(ctx)
	url := st.url()
	o.done++
	switch o.r.IntN(3) {
	case 0:
		o.must(ctx, "weigh", func(ctx context.Context, c *ctl.Client) error {
			_, err := c.Patch(ctx, url, ctl.Change{Weight: new(0.25 + 4*o.r.Float64())})
			return err
		})
		o.count("member weighed")
		time.Sleep(time.Second)
		o.must(ctx, "weigh as before", func(ctx context.Context, c *ctl.Client) error {
			_, err := c.Patch(ctx, url, ctl.Change{Weight: new(1.0)})
			return err
		})
	case 1:
		o.must(ctx, "drain", func(ctx context.Context, c *ctl.Client) error {
			_, err := c.Patch(ctx, url, ctl.Change{State: new("drain")})
			return err
		})
		o.must(ctx, "await the drain", func(ctx context.Context, c *ctl.Client) error { return c.Drained(ctx, url) })
		o.left(st)
		o.must(ctx, "enable", func(ctx context.Context, c *ctl.Client) error {
			_, err := c.Patch(ctx, url, ctl.Change{State: new("ready")})
			return err
		})
		o.count("member drained")
	default:
		o.must(ctx, "remove", func(ctx context.Context, c *ctl.Client) error {
			_, err := c.Remove(ctx, url, false)
			return err
		})
		o.must(ctx, "await the end", func(ctx context.Context, c *ctl.Client) error { return c.Gone(ctx, url) })
		o.left(st)
		o.must(ctx, "add", func(ctx context.Context, c *ctl.Client) error {
			_, err := c.Add(ctx, ctl.Change{URL: url, Role: string(st.role)})
			return err
		})
		o.count("member removed")
	}
}

// count files a turn among what the run has done to the proxy.
func (o *operator) count(turn string) { o.s.faults.close(o.s.faults.open("proxy", turn, "", 0)) }

// must repeats what fails, as while a successor takes over. That a reload has taken the backend out of
// the configuration, or put it back, is no failure.
func (o *operator) must(ctx context.Context, what string, do func(context.Context, *ctl.Client) error) {
	ctx, cancel := context.WithTimeout(ctx, operateBound)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		var c *ctl.Client
		if c, err = o.client(); err == nil {
			err = do(ctx, c)
		}
		if err == nil {
			return
		}
		for _, settled := range []string{"there is no backend", "pool already", "meanwhile"} {
			if strings.Contains(err.Error(), settled) {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	o.s.verdict.Breach(invHealth, "a change of the pools that did not come into force", "%s: %v", what, err)
}

// left watches an engine that has ended all requests for a moment. In a calm stage nothing may begin
// there. A process that has just been replaced may still use it.
func (o *operator) left(st *station) {
	pid, _, _ := o.s.proxy.now()
	from := time.Now()
	if !o.s.proxy.alone() || !o.s.plan.calmFor(from.Add(-requestDeadline), from) {
		return
	}
	time.Sleep(500 * time.Millisecond)
	if now, _, _ := o.s.proxy.now(); now != pid || !o.s.plan.calmFor(from, time.Now()) || !o.stillOut(st) {
		return
	}
	for _, r := range st.Requests() {
		if r.Time.After(from) && !strings.HasPrefix(r.RequestID, "xpyd-") && begun(r) {
			o.s.verdict.Breach(invHealth, "a request to an engine that had drained", "%s %s, %v after that", st.Name(), r.RequestID, r.Time.Sub(from))
		}
	}
}

// stillOut reports that no reload has put the engine back.
func (o *operator) stillOut(st *station) bool {
	s, err := o.status(context.Background())
	if err != nil {
		return false
	}
	for _, b := range s.Backends {
		if b.URL == st.url() && b.AdminState == "ready" {
			return false
		}
	}
	return true
}

// begun tells a leg from the rejection that gives a handle back, which any decode engine may get.
func begun(r sim.Record) bool { return r.MaxTokens > 0 && r.Outcome != "rejected" }
