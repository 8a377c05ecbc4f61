package sick

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"xpyd/engines/journal"
	"xpyd/tools/process"
)

// result is what has been seen of one ailment. Times run from the fault; 0: never.
type result struct {
	*ailment
	began                      time.Time
	page, event, metric, alert time.Duration
	what                       string // what the page said
	wrong                      []string
	noPrometheus               bool

	requests, harmed int
	usual, worst     time.Duration // until a first token: the 90th percentile before the fault, and the longest after it
	stall            time.Duration // the longest for which this machine has let this process stand still
	firstHarm        error
	unasked          error // why a place could not be asked last
	err              error
}

// place is where a fault may be named.
type place struct {
	seen *time.Duration
	look func() (bool, error)
}

// watch looks at each place twice a second until all have named the fault, or the time is over.
func (r *result) watch(ctx context.Context, b *bed, url string, o Options) error {
	lasts := o.Lasts
	if r.busy {
		lasts = o.Busy
	}
	places := []place{
		{&r.page, func() (bool, error) { return r.onPage(ctx, b, url) }},
		{&r.event, func() (bool, error) { return r.inEvents(ctx, b, url) }},
		{&r.metric, func() (bool, error) { return r.inMetrics(ctx, b, url) }},
	}
	if r.noPrometheus = b.prometheus == nil; !r.noPrometheus && !r.busy {
		places = append(places, place{&r.alert, func() (bool, error) { return b.prometheus.Fires(ctx, r.ailment.alert, url) }})
	}
	for end := r.began.Add(lasts); time.Now().Before(end); {
		missing := false
		for _, p := range places {
			if *p.seen > 0 {
				continue
			}
			ok, err := p.look()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if r.unasked = err; ok && err == nil {
				*p.seen = max(time.Since(r.began), time.Millisecond)
			} else {
				missing = true
			}
		}
		if !missing && !r.busy && time.Since(r.began) >= atLeast {
			break
		}
		if err := process.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// atLeast is how long the load goes on beside a fault, so that the harm is seen.
const atLeast = 30 * time.Second

// onPage reports whether a notice of the status page names the fault.
func (r *result) onPage(ctx context.Context, b *bed, url string) (bool, error) {
	var page struct {
		Notices []struct{ Text string }
	}
	if err := b.ask(ctx, "/status", &page); err != nil {
		return false, err
	}
	for _, n := range page.Notices {
		if !r.busy && strings.Contains(n.Text, url) && strings.Contains(n.Text, r.says) {
			r.what = n.Text
			return true, nil
		}
	}
	return false, nil
}

// accusing are the events that no engine may have that is only busy.
var accusing = []journal.Kind{journal.Down, journal.Ejected, journal.Wedged}

func (r *result) inEvents(ctx context.Context, b *bed, url string) (bool, error) {
	var page struct{ Events []journal.Event }
	if err := b.ask(ctx, "/events?since=0", &page); err != nil {
		return false, err
	}
	from := float64(r.began.UnixMilli())/1e3 - 0.01
	for _, e := range page.Events {
		switch {
		case e.Time < from:
		case r.busy:
			if line := fmt.Sprintf("%s %s: %s", e.Kind, e.Backend, e.Reason); slices.Contains(accusing, e.Kind) && !slices.Contains(r.wrong, line) {
				r.wrong = append(r.wrong, line)
			}
		case slices.Contains(r.kinds, e.Kind) && e.Backend == url:
			return true, nil
		}
	}
	return false, nil
}

func (r *result) inMetrics(ctx context.Context, b *bed, url string) (bool, error) {
	if r.busy {
		return false, nil
	}
	page, err := process.PageOf(ctx, "http://"+b.proxy.Admin)
	for series, v := range page.Series {
		if name, _, _ := strings.Cut(series, "{"); name == r.ailment.metric && (url == "" || strings.Contains(series, `backend="`+url+`"`)) && r.names(v) {
			return true, err
		}
	}
	return false, err
}

// count judges the requests of the clients.
func (r *result) count(all []visit, warm time.Duration) {
	var before []time.Duration
	for _, v := range all {
		if v.at.Before(r.began) && v.err == nil && v.at.After(r.began.Add(-warm/2)) {
			before = append(before, v.first)
		}
	}
	if len(before) > 0 {
		slices.Sort(before)
		r.usual = before[len(before)*9/10]
	}
	for _, v := range all {
		if v.at.Before(r.began) {
			continue
		}
		r.requests++
		r.worst = max(r.worst, v.first)
		if v.err == nil && (r.busy || v.first <= 2*r.usual+5*time.Second+r.stall) {
			continue
		}
		if r.harmed++; r.firstHarm == nil {
			r.firstHarm = v.err
		}
	}
}
