package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"xpyd/sim"
)

// StartSim runs xpyd sim on a free port with flags on top, and returns its base URL once it serves. It
// returns the process even if that says nothing.
func StartSim(ctx context.Context, output, executable string, flags ...string) (p *Process, url string, err error) {
	p, err = Start(output, nil, executable, append([]string{"sim", "--listen", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		return nil, "", err
	}
	line, err := p.AwaitLine(ctx, " ready: ")
	_, rest, _ := strings.Cut(string(line), " ready: ")
	url, _, _ = strings.Cut(rest, ",")
	return p, url, err
}

// StartEngines runs a program whose arguments have it call ServeEngines, with its log in dir.
func StartEngines(ctx context.Context, dir, executable string, args ...string) (p *Process, pools Pools, err error) {
	p, err = StartTelling(ctx, filepath.Join(dir, "engines.log"), nil, `"decode"`, &pools, executable, args...)
	return p, pools, err
}

// ServeEngines runs simulated engines of both roles until ctx ends. One JSON line on out says where they
// are, as Pools. front, unless it is nil, stands in front of each.
func ServeEngines(ctx context.Context, out io.Writer, all []sim.Options, front func(addr string) (string, error)) (err error) {
	var pools Pools
	for _, o := range all {
		e, err2 := sim.Start(o)
		if err2 != nil {
			return fmt.Errorf("start the %s engine %s: %w", o.Role, o.Name, err2)
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		addr := e.Addr()
		if front != nil {
			if addr, err2 = front(addr); err2 != nil {
				return err2
			}
		}
		if o.Role == sim.RolePrefill {
			pools.Prefill = append(pools.Prefill, addr)
		} else {
			pools.Decode = append(pools.Decode, addr)
		}
	}
	if err := json.NewEncoder(out).Encode(pools); err != nil {
		return fmt.Errorf("say where the engines are: %w", err)
	}
	<-ctx.Done()
	return nil
}
