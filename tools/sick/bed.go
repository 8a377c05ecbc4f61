package sick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"xpyd/cmd/ctl"
	"xpyd/sim"
	"xpyd/tools/certs"
	"xpyd/tools/completion"
	"xpyd/tools/monitoring"
	"xpyd/tools/process"
)

// bed is a deployment: three prefill and three decode engines in this process, an xpyd, and a Prometheus if there is one.
type bed struct {
	dir             string
	prefill, decode []*sim.Engine
	more            []*sim.Engine // added at run time
	ca              *certs.CA
	proxy           *process.Xpyd
	ctl             *ctl.Client
	prometheus      *monitoring.Prometheus // nil: there is none
	load            *load
	undo            []func() error
}

const poolSize = 3

func makeBed(ctx context.Context, o Options, dir string, a *ailment) (b *bed, err error) {
	b = &bed{dir: dir, load: &load{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return b, fmt.Errorf("make a folder: %w", err)
	}
	if b.ca, err = certs.New(dir); err != nil {
		return b, err
	}
	var pools process.Pools
	for i := range 2 * poolSize {
		opts := sim.Options{Name: fmt.Sprintf("engine-%d", i), Role: sim.RolePrefill, Model: completion.Model, NumBlocks: 65536, MaxSeqs: 512, MaxModelLen: 1 << 19}
		if i >= poolSize {
			opts.Role = sim.RoleDecode
		}
		if a.engines != nil {
			a.engines(&opts)
		}
		e, err := sim.Start(opts)
		if err != nil {
			return b, fmt.Errorf("start %s: %w", opts.Name, err)
		}
		if opts.Role == sim.RolePrefill {
			b.prefill, pools.Prefill = append(b.prefill, e), append(pools.Prefill, e.Addr())
		} else {
			b.decode, pools.Decode = append(b.decode, e), append(pools.Decode, e.Addr())
		}
	}
	flags := []string{"--backend-tls-ca", b.ca.File()}
	if a.flags != nil {
		more, err := a.flags(b)
		if err != nil {
			return b, err
		}
		flags = append(flags, more...)
	}
	if b.proxy, err = process.StartXpyd(ctx, dir, nil, o.Xpyd, pools, flags...); err != nil {
		return b, err
	}
	b.load.addr = b.proxy.Addr
	if b.ctl, err = ctl.New("http://"+b.proxy.Admin, "", nil); err != nil {
		return b, err
	}
	if executable := process.Find("prometheus", ""); executable != "" {
		b.prometheus, err = monitoring.StartPrometheus(ctx, dir, executable, o.Configs, []string{b.proxy.Admin}, nil)
	}
	return b, err
}

func (b *bed) close() error {
	var errs []error
	for _, undo := range b.undo {
		errs = append(errs, undo())
	}
	if b.prometheus != nil {
		b.prometheus.Stop()
	}
	if b.proxy != nil {
		b.proxy.Stop()
	}
	for _, all := range [][]*sim.Engine{b.prefill, b.decode, b.more} {
		for _, e := range all {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}

// add puts a backend of the role into a pool at run time.
func (b *bed) add(ctx context.Context, url string, role sim.Role) (string, error) {
	o, err := b.ctl.Add(ctx, ctl.Change{URL: url, Role: string(role)})
	return o.URL, err
}

// ask reads a page of the admin port.
func (b *bed) ask(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := process.Get(ctx, "http://"+b.proxy.Admin+path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

func (b *bed) path(name string) string { return filepath.Join(b.dir, name) }
