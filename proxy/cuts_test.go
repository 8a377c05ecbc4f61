package proxy

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"xpyd/engines/handoff"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// muteBackend takes requests and never answers. It reports each to seen when its head begins.
func muteBackend(t *testing.T) (u *upstream.Client, seen chan bool) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	seen = make(chan bool, 8)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = conn.Read(make([]byte, 1))
				seen <- true
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	addr := ln.Addr().String()
	u = upstream.New(upstream.Config{Addr: addr, Host: addr, DialTimeout: 10 * time.Second, MaxIdle: time.Second})
	t.Cleanup(u.Close)
	return u, seen
}

// issuedHandoff has a handle that was given just now.
func issuedHandoff(kv handoff.KV) handoff.Handoff {
	pools := router.DefaultConfig()
	pools.Prefill, pools.Decode = router.MustEntries("http://127.0.0.1:1"), router.MustEntries("http://127.0.0.1:2")
	rt, err := router.New(pools, 1, time.Now)
	if err != nil {
		panic(err)
	}
	h := handoff.NewKeeper(handoff.Config{KV: kv, Ledger: &handoff.Ledger{}, Ended: func(handoff.End) {}}).Handoff()
	h.Issue(kvparams.Handle{Raw: []byte("{}"), Blocks: 1}, rt.Snapshot().Backends(router.Prefill)[0], time.Now())
	return h
}

// The table of cuts.go: what cuts which leg, and when at the earliest. Nothing else ends either
// leg.
func TestWhatCutsWhichLeg(t *testing.T) {
	const prefillGrace, decodeGrace, lease, margin = 60 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond, 30 * time.Millisecond
	type cut struct {
		why   upstream.Cause // 0: the leg goes on
		after time.Duration
	}
	for name, tc := range map[string]struct {
		happens func(c *completion)
		p, d    cut
	}{
		"the client leaves": {(*completion).ClientGone, cut{leg.CutGone, prefillGrace}, cut{leg.CutGone, decodeGrace}},
		"the process ends":  {(*completion).ServerStopping, cut{leg.CutStop, prefillGrace}, cut{leg.CutStop, 0}},
		"P goes down":       {func(c *completion) { c.p.down() }, cut{leg.CutDown, downGrace}, cut{}},
		"D goes down":       {func(c *completion) { c.d.down() }, cut{}, cut{leg.CutDown, 0}},
		"P goes down while D loads": {func(c *completion) {
			c.bill.stream = true
			c.handoff = issuedHandoff(handoff.KV{Lease: lease, LeaseMargin: margin})
			c.d.sourceDown()
		}, cut{}, cut{leg.CutSource, 0}},
		"P goes down while D loads for the last time": {func(c *completion) {
			c.round.n = maxRounds
			c.handoff = issuedHandoff(handoff.KV{Lease: lease, LeaseMargin: margin})
			c.d.sourceDown()
		}, cut{}, cut{leg.CutSource, lease - margin}},
		"P goes down after the client has left": {func(c *completion) { c.ClientGone(); c.p.down() }, cut{leg.CutGone, prefillGrace}, cut{leg.CutGone, decodeGrace}},
		"the process ends after D went down":    {func(c *completion) { c.d.down(); c.ServerStopping() }, cut{leg.CutStop, prefillGrace}, cut{leg.CutDown, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			dialect, _ := kvparams.Lookup("nixl")
			c, _ := (&Server{downGrace: downGrace, dialects: kvparams.Reuse{}.Dialects(dialect)}).newCompletion().(*completion)
			_, c.conn = accepted(t)
			timeouts := Timeouts{PrefillAbortGrace: prefillGrace, DecodeAbortGrace: decodeGrace}
			c.s.bounds.Store(&bounds{Timeouts: timeouts})
			c.s.cfg.KV.Lease, c.s.cfg.KV.LeaseMargin = lease, margin
			u, seen := muteBackend(t)
			ended := map[*upstream.Exchange]chan error{&c.p.X: make(chan error, 1), &c.d.X: make(chan error, 1)}
			for x, done := range ended {
				go func() {
					done <- x.Do(u, &upstream.Request{Method: "GET", Path: "/"}, time.Now().Add(time.Minute), false)
				}()
				<-seen
			}
			began := time.Now()
			tc.happens(c)
			for x, want := range map[*upstream.Exchange]cut{&c.p.X: tc.p, &c.d.X: tc.d} {
				if x.CutBy() != want.why {
					t.Errorf("cut by %d, want %d", x.CutBy(), want.why)
				}
				if want.why == 0 {
					x.Cut(leg.CutOther, time.Now()) // so that the test ends
					want.why = leg.CutOther
				}
				err := <-ended[x]
				var ue *upstream.Error
				if !errors.As(err, &ue) || ue.Cause != want.why || ue.Stage != upstream.StageHead {
					t.Errorf("%#v, want a head that did not come, of cause %d", err, want.why)
				}
				if took := time.Since(began); took < want.after {
					t.Errorf("cut after %v, want %v", took, want.after)
				}
				x.Reset()
			}
		})
	}
}
