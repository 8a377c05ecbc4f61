package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"xpyd/tools/process"
)

// proxy is ./xpyd serve in a process of its own, on ports that it chose.
type proxy struct {
	*process.Process
	url, admin string // http://127.0.0.1:…, of both ports
	log        string // path of the file
}

// drainTime is how long it may take to end.
const drainTime = 60 * time.Second

// proxy starts xpyd with the arguments and returns after it is ready for requests. It is stopped at
// the check's end.
func (f *fleet) proxy(ctx context.Context, args ...string) (*proxy, error) {
	f.mu.Lock()
	f.served++
	log := filepath.Join(f.runDir, fmt.Sprintf("xpyd-%d-%d.log", f.opts.ports, f.served))
	f.mu.Unlock()
	x, err := process.Serve(ctx, log, nil, f.opts.xpyd, append(args, "--connector", f.opts.kv.option())...)
	if err != nil {
		return nil, err
	}
	p := &proxy{Process: x.Process, url: "http://" + x.Addr, admin: "http://" + x.Admin, log: log}
	f.mu.Lock()
	f.proxies = append(f.proxies, p)
	f.mu.Unlock()
	return p, nil
}

// metric returns the sum of the series of a metric that carry all labels, each given as
// key="value".
func (p *proxy) metric(name string, labels ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	page, err := p.page(ctx)
	if err != nil {
		return 0, err
	}
	return page.Sum(name, labels...)
}

// page returns what xpyd counts.
func (p *proxy) page(ctx context.Context) (process.Page, error) {
	page, err := process.PageOf(ctx, p.admin)
	if err != nil {
		return page, fmt.Errorf("read metrics of xpyd: %w", err)
	}
	return page, nil
}

// lines returns the log so far, without a line that is still being written.
func (p *proxy) lines() []map[string]any {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return nil
	}
	var all []map[string]any
	for line := range bytes.Lines(text) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) == nil {
			all = append(all, fields)
		}
	}
	return all
}

// poll asks until done reports true, for at most bound.
func poll(ctx context.Context, bound time.Duration, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
