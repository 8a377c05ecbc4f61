package reload

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	"xpyd/tools/probe"
)

// findings counts faults by kind, with the first of each. It is safe for concurrent use.
type findings struct {
	mu    sync.Mutex
	kinds []string
	first map[string]string
	count map[string]int
}

func (f *findings) add(kind, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == nil {
		f.first, f.count = map[string]string{}, map[string]int{}
	}
	if f.count[kind]++; f.count[kind] == 1 {
		f.kinds = append(f.kinds, kind)
		f.first[kind] = fmt.Sprintf(format, args...)
	}
}

func (f *findings) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, kind := range f.kinds {
		all = append(all, fmt.Sprintf("%d× %s: %s", f.count[kind], kind, f.first[kind]))
	}
	return all
}

// tally counts what happened.
type tally struct {
	reloads, left, back    atomic.Int64
	complete, gone, checks atomic.Int64
}

// judge checks the proxy at rest, and the engines that have left.
func (r *run) judge(ctx context.Context) error {
	if more := beyond(r.after, r.base); more != "" {
		r.findings.add("more than before", "%s: %v, before: %v", more, r.after, r.base)
	}
	g, err := probe.ReadGauges(ctx, r.proxy.admin)
	if err != nil {
		return err
	}
	for _, p := range g.Problems() {
		r.findings.add("something is held", "%s", p)
	}
	r.fleet.judge()
	if err := r.judgeSeries(ctx); err != nil {
		return err
	}
	return r.judgePools(ctx)
}

// judgeHandles excuses handles that came too late for a prefill whose client had left. On a busy
// machine an engine takes longer than timeouts.prefill_abort_grace.
func (r *run) judgeHandles(series map[string]float64) {
	open, late := r.handles.open(), series[`xpyd_kv_orphans_total{reason="answer_lost"}`]
	if float64(len(open)) > late {
		r.findings.add("handles that nobody gave back", "%d, the first issued by %s; the proxy knows of %g answers that it has not read", len(open), open[0], late)
	}
}

var backendLabel = regexp.MustCompile(`[{,]backend="([^"]*)"`)

// judgeSeries finds metrics of backends that were removed, and reloads that were not counted.
func (r *run) judgeSeries(ctx context.Context) error {
	series, err := probe.Series(ctx, r.proxy.admin)
	if err != nil {
		return err
	}
	r.judgeHandles(series)
	here := map[string]bool{}
	for _, url := range slices.Concat(r.fleet.urls(true), r.fleet.urls(false)) {
		here[url] = true
	}
	gone, names := map[string]int{}, 0
	for name := range series {
		if m := backendLabel.FindStringSubmatch(name); m != nil && !here[m[1]] {
			gone[m[1]]++
			names++
		}
	}
	if names > 0 {
		r.findings.add("metrics of backends that have left", "%d series of %d backends, of %d series in all", names, len(gone), len(series))
	}
	ok, failed := series[`xpyd_config_reloads_total{result="ok"}`], series[`xpyd_config_reloads_total{result="failed"}`]
	if ok != float64(r.tally.reloads.Load()) || failed != 0 {
		r.findings.add("reloads that were counted otherwise", "%g ok and %g failed of %d", ok, failed, r.tally.reloads.Load())
	}
	return nil
}

// judgePools compares the backends that the proxy shows with those of the file.
func (r *run) judgePools(ctx context.Context) error {
	text, err := probe.Fetch(ctx, "http://"+r.proxy.admin+"/pools")
	if err != nil {
		return err
	}
	var pools struct {
		Prefill, Decode []struct{ URL string }
	}
	if err := json.Unmarshal(text, &pools); err != nil {
		return fmt.Errorf("read the proxy's pools: %w", err)
	}
	for _, p := range []struct {
		role string
		got  []struct{ URL string }
		want []string
	}{{"prefill", pools.Prefill, r.fleet.urls(true)}, {"decode", pools.Decode, r.fleet.urls(false)}} {
		var got []string
		for _, b := range p.got {
			got = append(got, b.URL)
		}
		slices.Sort(got)
		slices.Sort(p.want)
		if !slices.Equal(got, p.want) {
			r.findings.add("pools other than in the file", "%d %s backends, %d in the file", len(got), p.role, len(p.want))
		}
	}
	return nil
}
