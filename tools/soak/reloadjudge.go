package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"xpyd/tools/process"
)

// judge checks the proxy at rest, and the engines that have left.
func (r *reload) judge(ctx context.Context) error {
	if more := beyond(r.after, r.base); more != "" {
		r.found("more than before", "%s: %v, before: %v", more, r.after, r.base)
	}
	_, admin, _ := r.proxy.now()
	g, err := process.ReadGauges(ctx, admin)
	if err != nil {
		return err
	}
	for _, p := range g.Problems() {
		r.found("something is held", "%s", p)
	}
	r.backends.judge()
	if err := r.judgeSeries(ctx, admin); err != nil {
		return err
	}
	return r.judgePools(ctx, admin)
}

// judgeHandles excuses handles that came too late for a prefill whose client had left. On a busy
// machine an engine takes longer than timeouts.prefill_abort_grace.
func (r *reload) judgeHandles(series map[string]float64) {
	open, late := r.handles.open(), series[`xpyd_kv_orphans_total{reason="answer_lost"}`]
	if float64(len(open)) > late {
		r.found("handles that nobody gave back", "%d, the first issued by %s; the proxy knows of %g answers that it has not read", len(open), open[0], late)
	}
}

var backendLabel = regexp.MustCompile(`[{,]backend="([^"]*)"`)

// judgeSeries finds metrics of backends that were removed, and reloads that were not counted.
func (r *reload) judgeSeries(ctx context.Context, admin string) error {
	series, err := process.Series(ctx, admin)
	if err != nil {
		return err
	}
	r.judgeHandles(series)
	more, _ := r.otherSeries(series)
	if len(more) > 0 {
		r.found("metrics of backends that have left", "%d series, of %d in all, among them %s", len(more), len(series), more[0])
	}
	ok, failed := series[`xpyd_config_reloads_total{result="ok"}`], series[`xpyd_config_reloads_total{result="failed"}`]
	if ok != float64(r.reloads.Load()) || failed != 0 {
		r.found("reloads that were counted otherwise", "%g ok and %g failed of %d", ok, failed, r.reloads.Load())
	}
	return nil
}

// otherSeries are the series of backends that are not in the configuration and must be gone, and how many there are of
// those that the proxy may still show.
func (r *reload) otherSeries(series map[string]float64) (more []string, kept int) {
	here := slices.Concat(r.backends.urls(true), r.backends.urls(false))
	for name := range series {
		switch m := backendLabel.FindStringSubmatch(name); {
		case m == nil || slices.Contains(here, m[1]):
		case r.backends.keeps(name, m[1]):
			kept++
		default:
			more = append(more, name)
		}
	}
	return more, kept
}

// judgePools compares the backends that the proxy shows with those of the file.
func (r *reload) judgePools(ctx context.Context, admin string) error {
	text, err := process.Get(ctx, "http://"+admin+"/pools")
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
	}{{"prefill", pools.Prefill, r.backends.urls(true)}, {"decode", pools.Decode, r.backends.urls(false)}} {
		var got []string
		for _, b := range p.got {
			got = append(got, b.URL)
		}
		slices.Sort(got)
		slices.Sort(p.want)
		if !slices.Equal(got, p.want) {
			r.found("pools other than in the file", "%d %s backends, %d in the file", len(got), p.role, len(p.want))
		}
	}
	return nil
}
