package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"xpyd/metrics/exposition"
)

// figure is a number that an engine counts or shows.
type figure int

const (
	running figure = iota
	waiting
	usedKV    // share of the KV blocks, 0 to 1, summed over engines
	finished  // requests that ended, for any reason
	ranOut    // requests that ended with all their tokens
	prompt    // tokens
	generated // tokens
	external  // prompt tokens that came from another engine, or were promised
	pulled    // prompt tokens that came from another engine
	computed  // prompt tokens that the engine computed
	transfers
	transferSeconds
	transferBytes
	failures // of transfers
	figures
)

// source is the series of a figure: a name, and a label as key="value" or "".
type source struct{ name, label string }

func sources() [figures]source {
	return [figures]source{
		running:         {name: "vllm:num_requests_running"},
		waiting:         {name: "vllm:num_requests_waiting"},
		usedKV:          {name: "vllm:kv_cache_usage_perc"},
		finished:        {name: "vllm:request_success_total"},
		ranOut:          {"vllm:request_success_total", `finished_reason="length"`},
		prompt:          {name: "vllm:prompt_tokens_total"},
		generated:       {name: "vllm:generation_tokens_total"},
		external:        {name: "vllm:external_prefix_cache_hits_total"},
		pulled:          {"vllm:prompt_tokens_by_source_total", `source="external_kv_transfer"`},
		computed:        {"vllm:prompt_tokens_by_source_total", `source="local_compute"`},
		transfers:       {name: "vllm:nixl_xfer_time_seconds_count"},
		transferSeconds: {name: "vllm:nixl_xfer_time_seconds_sum"},
		transferBytes:   {name: "vllm:nixl_bytes_transferred_sum"},
		failures:        {name: "vllm:nixl_num_failed_transfers_total"},
	}
}

// page has the figures of one engine, or of a pool. has is false for those that it lacks.
type page struct {
	value [figures]float64
	has   [figures]bool
}

// figuresOf takes the figures out of a metrics page. Samples of several ranks are summed.
func figuresOf(text exposition.Page) (p page) {
	for f, s := range sources() {
		var labels []string
		if s.label != "" {
			labels = []string{s.label}
		}
		v, err := text.Sum(s.name, labels...)
		p.value[f], p.has[f] = v, err == nil
	}
	// Where several processes answer for one server, vLLM shows a gauge only once it was set, which is with the first
	// request.
	if p.has[prompt] && p.value[prompt] == 0 {
		p.has[running], p.has[waiting], p.has[usedKV] = true, true, true
	}
	return p
}

// reading is one look at all engines.
type reading struct{ prefill, decode []page }

// read looks at all engines at once.
func (r *run) read(ctx context.Context) (now reading, err error) {
	urls := slices.Concat(r.Prefill, r.Decode)
	pages, errs := make([]page, len(urls)), make([]error, len(urls))
	var group sync.WaitGroup
	for i, url := range urls {
		group.Go(func() { pages[i], errs[i] = r.page(ctx, url) })
	}
	group.Wait()
	return reading{pages[:len(r.Prefill)], pages[len(r.Prefill):]}, errors.Join(errs...)
}

// page looks at one engine.
func (r *run) page(ctx context.Context, url string) (page, error) {
	text, err := r.metrics(ctx, url)
	if err != nil {
		return page{}, undecided{fmt.Errorf("metrics of %s: %w", url, err)}
	}
	return figuresOf(text), nil
}

func (r *run) metrics(ctx context.Context, url string) (exposition.Page, error) {
	b, err := r.fetch(ctx, url+"/metrics")
	if err != nil {
		return exposition.Page{}, err
	}
	return exposition.Read(bytes.NewReader(b))
}

// sum adds up a pool. A figure is known only if every engine shows it.
func sum(pool []page) (s page) {
	for f := range figures {
		s.has[f] = true
		for _, p := range pool {
			s.value[f] += p.value[f]
			s.has[f] = s.has[f] && p.has[f]
		}
	}
	return s
}

// since is the change of a pool's figures.
func since(now, before []page) page {
	a, b := sum(now), sum(before)
	for f := range figures {
		a.value[f] -= b.value[f]
	}
	return a
}

// idle reports that nothing runs and nothing waits.
func (n reading) idle() bool {
	for _, p := range slices.Concat(n.prefill, n.decode) {
		if p.value[running] > 0 || p.value[waiting] > 0 {
			return false
		}
	}
	return true
}

// lacks returns an error if an engine does not show one of the needed figures.
func (n reading) lacks(needed ...figure) error {
	for _, p := range slices.Concat(n.prefill, n.decode) {
		for _, f := range needed {
			if !p.has[f] {
				return undecided{fmt.Errorf("an engine shows no %s", sources()[f].name)}
			}
		}
	}
	return nil
}

const (
	look       = 100 * time.Millisecond // between two looks at the engines
	quietWait  = 5 * time.Second        // for the engines to be idle
	quietAgain = time.Second            // the same, after a first wait in vain
	countWait  = 3 * time.Second        // for counters, which rise shortly after an answer
)

// busyLead begins what a row says that other traffic makes undecidable.
const busyLead = "busy: "

// busy is the error of a row that other traffic makes undecidable. The text says how the traffic shows.
func busy(format string, args ...any) error {
	return undecided{fmt.Errorf(busyLead+format+"; counters cannot tell other requests from those of this command", args...)}
}

// quiet waits until two readings in a row show idle engines that count nothing.
func (r *run) quiet(ctx context.Context) (now reading, err error) {
	last, err := r.read(ctx)
	if err == nil {
		err = last.lacks(running, waiting, usedKV, finished, prompt, generated)
	}
	if err != nil {
		return now, err
	}
	for end := time.Now().Add(r.patience); time.Now().Before(end); last = now {
		if err := sleep(ctx, 3*look); err != nil {
			return now, err
		}
		if now, err = r.read(ctx); err != nil {
			return now, err
		}
		p, d := since(now.prefill, last.prefill), since(now.decode, last.decode)
		if now.idle() && p.still() && d.still() {
			return now, nil
		}
	}
	defer func() { r.patience = quietAgain }()
	return now, busy("the engines were never idle within %v", r.patience)
}

// still reports that a change counts nothing.
func (p page) still() bool {
	return p.value[finished] == 0 && p.value[prompt] == 0 && p.value[generated] == 0
}

// await reads until done reports true, or until within has passed.
func (r *run) await(ctx context.Context, within time.Duration, done func(reading) bool) (now reading, err error) {
	for end := time.Now().Add(within); ; {
		if now, err = r.read(ctx); err != nil || done(now) || time.Now().After(end) {
			return now, err
		}
		if err := sleep(ctx, look); err != nil {
			return now, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
