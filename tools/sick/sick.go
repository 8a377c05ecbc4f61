// Package sick makes one engine of a small deployment sick in each of the ways that operators meet, under load, and measures
// after how many seconds each place names it that an operator looks at, and how many requests of clients it has harmed.
package sick

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"xpyd/tools/process"
)

// Options say what is planted.
type Options struct {
	Xpyd    string        // the program
	Configs string        // the folder with the rules of prometheus
	Only    string        // a regular expression of names; empty: all
	Rate    float64       // requests a second of each deployment
	Warm    time.Duration // load before the fault, from which the usual is known
	Lasts   time.Duration // how long a fault lasts that ends at no sooner time
	Busy    time.Duration // the same for the busy loads
	AtOnce  int           // deployments that run at a time
	Logs    string        // a folder that keeps the logs; empty: none does
}

// Validate reports what is wrong with o.
func (o *Options) Validate() error {
	if _, err := regexp.Compile(o.Only); err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	if o.Rate <= 0 || o.Warm <= 0 || o.Lasts <= 0 || o.Busy <= 0 || o.AtOnce < 1 {
		return errors.New("--rate, --warm, --lasts, --busy and --at-once must be above 0")
	}
	return nil
}

// Run plants all faults, each in a deployment of its own, and prints the table. It fails if a fault stays unnamed, an engine that
// is only busy is ejected, or a goal is missed.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	dir := o.Logs
	if dir == "" {
		if dir, err = os.MkdirTemp("", "xpyd-sick-"); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	var wg sync.WaitGroup
	slots, results := make(chan struct{}, o.AtOnce), []*result{}
	for _, a := range ailments() {
		if !regexp.MustCompile(o.Only).MatchString(a.name) {
			continue
		}
		r := &result{ailment: a}
		results = append(results, r)
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() == nil {
				r.err = r.run(ctx, o, filepath.Join(dir, strings.ReplaceAll(a.name, " ", "-")))
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return report(out, results, o)
}

// run plants the fault in a deployment of its own, and watches what names it.
func (r *result) run(ctx context.Context, o Options, dir string) (err error) {
	b, err := makeBed(ctx, o, dir, r.ailment)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	loaded, unload := context.WithCancel(ctx)
	l := &load{addr: b.proxy.Addr, rate: o.Rate}
	end := l.start(loaded)
	defer func() { unload(); end() }()
	stalled := watchStalls(loaded)
	if err := process.Sleep(ctx, o.Warm); err != nil {
		return err
	}
	r.began = time.Now()
	healed, heal := context.WithCancel(ctx)
	defer heal()
	url, err := r.plant(healed, b)
	if err != nil {
		return fmt.Errorf("plant it: %w", err)
	}
	if err := r.watch(ctx, b, url, o); err != nil {
		return err
	}
	heal()
	unload()
	end()
	r.stall = <-stalled
	r.count(l.taken(), o.Warm)
	return nil
}
