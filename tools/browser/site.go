package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"xpyd/cmd/config"
	"xpyd/cmd/daemon"
	"xpyd/router"
	"xpyd/sim"
	"xpyd/tools/process"
)

// token is that of the site's admin port.
const token = "open-sesame"

// clients is how many send one request after the other.
const clients = 6

// site is a proxy over simulated engines, at the pace of make demo.
type site struct {
	engines []*sim.Engine // two prefill, two decode
	proxy   *daemon.Proxy
	stop    context.CancelFunc
	sending sync.WaitGroup
}

// openSite returns what it has started, even if it fails.
func openSite() (*site, error) {
	s := &site{stop: func() {}}
	pools := router.DefaultConfig()
	for i := range 4 {
		o := sim.Options{Name: fmt.Sprintf("prefill-%d", i), Role: sim.RolePrefill}
		if i >= 2 {
			o.Name, o.Role = fmt.Sprintf("decode-%d", i-2), sim.RoleDecode
		}
		e, err := sim.Start(o)
		if err != nil {
			return s, fmt.Errorf("start %s: %w", o.Name, err)
		}
		s.engines = append(s.engines, e)
		if i < 2 {
			pools.Prefill = append(pools.Prefill, router.MustEntries(e.URL())...)
		} else {
			pools.Decode = append(pools.Decode, router.MustEntries(e.URL())...)
		}
	}
	cfg := config.Default()
	cfg.Listen, cfg.Admin, cfg.AdminToken, cfg.Router = "127.0.0.1:0", "127.0.0.1:0", token, pools
	cfg.Timeouts.Drain = 5 * time.Second
	p, err := daemon.Start(cfg, "browser", zerolog.Nop())
	s.proxy = p
	return s, err
}

// load sends requests until the site closes. Some clients leave early, as people do.
func (s *site) load(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	for range clients {
		s.sending.Go(func() {
			for ctx.Err() == nil {
				s.request(ctx)
			}
		})
	}
}

// request sends one chat and reads its answer, whatever comes of it.
func (s *site) request(ctx context.Context) {
	if rand.IntN(20) == 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, 200*time.Millisecond)
		defer leave()
	}
	body := fmt.Sprintf(`{"model":"sim","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%d %s"}]}`,
		20+rand.IntN(60), rand.Int(), strings.Repeat("word ", 100+rand.IntN(1500)))
	resp, err := process.Send(ctx, http.DefaultClient, "http://"+s.proxy.Addr+"/v1/chat/completions", []byte(body))
	if err != nil {
		_ = rest(ctx, 100*time.Millisecond) // the proxy may have ended
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// quiet ends the load.
func (s *site) quiet() {
	s.stop()
	s.sending.Wait()
}

// end ends the proxy. Later calls do nothing.
func (s *site) end() error {
	s.quiet()
	p := s.proxy
	if s.proxy = nil; p == nil {
		return nil
	}
	return p.Shutdown()
}

func (s *site) close() error {
	err := s.end()
	for _, e := range s.engines {
		err = errors.Join(err, e.Close())
	}
	return err
}
