package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"xpyd/admin"
	"xpyd/admin/desk"
	"xpyd/admin/members"
	"xpyd/cmd/config"
	"xpyd/proxy"
	"xpyd/router"
)

// Proxy is a proxy with its ports open.
type Proxy struct {
	Addr      string // the address on which the data port is open
	AdminAddr string // "" without an admin port

	server  *proxy.Server
	members *members.Set
	desk    *desk.Desk // what the status page shows; nil without an admin port, as admin is
	admin   *http.Server
	tokens  *admin.Tokens // of admin
	ports   []port
	failed  chan error
}

// Failed reports a listener that gave up.
func (p *Proxy) Failed() <-chan error { return p.failed }

// Start opens the ports of cfg and serves in the background until Shutdown. version is that of this
// build.
func Start(cfg config.Config, version string, log zerolog.Logger) (*Proxy, error) {
	p, err := openProxy(cfg, version, &Inheritance{}, admin.Control{}, log)
	if err == nil {
		p.accept()
	}
	return p, err
}

// openProxy starts everything, but does not accept clients, which queue at the ports. Before accept the
// proxy is ended by close, and after it by Shutdown.
func openProxy(cfg config.Config, version string, from *Inheritance, control admin.Control, log zerolog.Logger) (*Proxy, error) {
	p := &Proxy{failed: make(chan error, 2)}
	var err error
	if p.members, err = openMembers(cfg, log); err != nil {
		return nil, err
	}
	if err := members.CheckPlace(cfg.Members.StateFile); err != nil {
		return nil, stateError(err)
	}
	rt, err := router.New(p.members.Config(), cfg.DecodeOnly.MaxShare, time.Now)
	if err != nil {
		return nil, config.UsageError{Err: err}
	}
	if p.ports, err = from.openPorts(cfg); err != nil {
		return nil, err
	}
	p.Addr = p.ports[0].Addr().String()
	if p.server, err = proxy.New(cfg.Config, rt, nil, version, log); err != nil {
		return nil, errors.Join(err, p.closePorts())
	}
	if err := p.members.Keep(); err != nil {
		return nil, errors.Join(stateError(err), p.close())
	}
	p.members.Bind(p.server.SetPools, p.server.View().Journal)
	p.server.FindRanks(p.members.Ranks)
	if len(p.ports) > 1 {
		p.AdminAddr = p.ports[1].Addr().String()
		control.Members, control.Adapters = p.members, p.server.View().Adapters
		p.server.View().Metrics.WatchStateFile(func() bool { return p.members.Unkept() == nil })
		p.desk = desk.New(version, time.Now)
		p.server.OnEnd(p.desk.Ended)
		p.tokens = admin.NewTokens(cfg.AdminToken, cfg.AdminTokens)
		p.admin = admin.New(admin.Config{
			View: p.server.View(), Desk: p.desk, Tokens: p.tokens, Siblings: cfg.Siblings, Pprof: cfg.Pprof, Control: control, Log: log,
		})
	}
	return p, nil
}

// openMembers puts the changes of the state file on the pools of cfg.
func openMembers(cfg config.Config, log zerolog.Logger) (*members.Set, error) {
	cfg.Router.Connector = cfg.Connector
	set, err := members.Open(cfg.Router, cfg.Members.StateFile, cfg.Fits, log)
	if err != nil {
		return nil, stateError(err)
	}
	return set, nil
}

// CheckState refuses the state file that a start with cfg would refuse for what it holds. The file and its
// folder may be there only for the process that serves, so their absence is no fault. doubt says why the file
// was not checked, if it was not.
func CheckState(cfg config.Config) (doubt string, err error) {
	const read = 4 // R_OK of access(2), which does not open a pipe
	if errors.Is(syscall.Access(cfg.Members.StateFile, read), fs.ErrPermission) {
		return "state_file: this user may not read it, so it was not checked", nil
	}
	_, err = openMembers(cfg, zerolog.Nop())
	return "", err
}

// stateError is an error of the state file as a start reports it.
func stateError(err error) error {
	err = fmt.Errorf("config: %w", err)
	if refused := new(members.Error); errors.As(err, &refused) {
		return config.UsageError{Err: err}
	}
	return err
}

// accept serves both ports in the background.
func (p *Proxy) accept() {
	go func() {
		if err := p.server.Serve(p.ports[0].Listener); err != nil {
			p.failed <- fmt.Errorf("serve %s: %w", p.Addr, err)
		}
	}()
	if p.admin == nil {
		return
	}
	go func() {
		serve := p.admin.Serve
		if p.admin.TLSConfig != nil {
			serve = func(ln net.Listener) error { return p.admin.ServeTLS(ln, "", "") } // from TLSConfig
		}
		err := serve(p.ports[1].Listener)
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) { // not after Shutdown or retire
			p.failed <- fmt.Errorf("serve admin %s: %w", p.AdminAddr, err)
		}
	}()
}

// retire leaves the ports to the process that has taken over. It returns when no client is left, and at
// the latest when ctx ends or the drain time is over.
func (p *Proxy) retire(ctx context.Context) error {
	if p.admin != nil {
		_ = p.ports[1].Close()
		p.admin.SetKeepAlivesEnabled(false)
	}
	return p.server.Retire(ctx)
}

// reload puts the pools, the rules and the keys of next in force, or none of them. What operators have
// changed about the pools at run time stays.
func (p *Proxy) reload(old, next config.Config) error {
	if changed := config.NeedsRestart(old, next); len(changed) > 0 {
		p.server.ReloadFailed()
		return fmt.Errorf("%s changed: a reload changes the pools, policies, affinity, pd, caps, queue, health and routing rules, client keys, the tokens in admin_token_file, log.level, and most timeouts and limits only; restart for the other keys, with USR2 and no loss", strings.Join(changed, ", "))
	}
	if err := p.server.KeysFit(next.Terms()); err != nil {
		p.server.ReloadFailed()
		return err
	}
	counted := false
	err := p.members.Rebase(next.Router, func(pools router.Config) error {
		counted = true
		return p.server.Reload(pools)
	})
	if !counted {
		p.server.ReloadFailed()
	}
	if err == nil {
		p.server.SetBounds(next.Timeouts, next.Limits)
		p.server.ReplaceKeys(next.Terms())
		if p.tokens != nil {
			p.tokens.Put(next.AdminToken, next.AdminTokens)
		}
	}
	return err
}

// Shutdown drains the data port. The admin port answers until the end.
func (p *Proxy) Shutdown() error {
	err := p.server.Shutdown()
	if p.admin == nil {
		return err
	}
	// After retire the listener is closed, and Serve may not have noticed that.
	if adminErr := p.admin.Close(); !errors.Is(adminErr, net.ErrClosed) {
		err = errors.Join(err, adminErr)
	}
	return err
}

// close ends a proxy that has accepted nothing.
func (p *Proxy) close() error { return errors.Join(p.server.Shutdown(), p.closePorts()) }

func (p *Proxy) closePorts() error {
	var err error
	for _, port := range p.ports {
		err = errors.Join(err, port.Close())
	}
	return err
}
