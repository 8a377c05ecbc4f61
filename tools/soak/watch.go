package soak

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"xpyd/tools/process"
)

// sampleEvery is the time between two looks at the proxy's metrics.
const sampleEvery = 100 * time.Millisecond

// sampler watches the proxy while it serves: its metrics, its memory, the engines' lives.
type sampler struct {
	s      *soak
	client *http.Client

	// These are of the last sample. The goroutine of run owns them until it has ended.
	last    metricSample
	samples int
	missed  int // scrapes without an answer, because a process took over
	rss     []rssSample
	stale   int  // reads of blocks that were not pinned
	kept    bool // the state at the first breach was kept
}

// metricSample is one scrape.
type metricSample struct {
	series map[string]float64
	kinds  map[string]string // by the metric's name: gauge, counter, histogram, summary
	begun  float64           // process_start_time_seconds tells one process from the next
}

// rssSample is the resident memory of one process, in bytes.
type rssSample struct {
	at  time.Time
	pid int
	rss float64
}

func newSampler(s *soak) *sampler {
	// It keeps its connection. Ten new ones a second would be most of what is seen.
	return &sampler{s: s, client: &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}}
}

// run ends when ctx ends.
func (m *sampler) run(ctx context.Context) {
	defer m.client.CloseIdleConnections()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := m.look(ctx); err != nil && ctx.Err() == nil {
			m.missed++
		}
		if n%10 == 0 {
			m.lookAtProcess()
		}
		if n%50 == 0 {
			m.lookAtLedgers()
		}
		if !m.kept && len(m.s.verdict.Of("")) > 0 {
			m.kept = true
			m.s.keepState(ctx, "first")
		}
		for _, s := range m.s.fleet.all() {
			if s.died() {
				m.s.verdict.Breach(invHandles, "an engine that died of what it was sent", "%s", s.Name())
			}
		}
	}
}

// look takes one sample and compares it with the last.
func (m *sampler) look(ctx context.Context) error {
	_, admin, _ := m.s.proxy.now()
	next, err := m.sample(ctx, admin)
	if err != nil {
		return err
	}
	m.samples++
	for name, value := range next.series {
		base, _, _ := strings.Cut(name, "{")
		switch {
		case next.kinds[base] == "gauge" && strings.HasPrefix(base, "xpyd_") && value < 0:
			m.s.verdict.Breach(invGauges, "a gauge below zero", "%s %g", name, value)
		case next.kinds[base] != "gauge" && next.kinds[base] != "summary" && !engines(base) && next.begun == m.last.begun && value < m.last.series[name]:
			m.s.verdict.Breach(invGauges, "a counter that went back", "%s %g after %g", name, value, m.last.series[name])
		}
	}
	m.last = next
	return nil
}

func (m *sampler) sample(ctx context.Context, admin string) (metricSample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return metricSample{}, fmt.Errorf("sample the proxy: %w", err)
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return metricSample{}, fmt.Errorf("sample the proxy: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	return readSample(resp.Body)
}

func readSample(in io.Reader) (metricSample, error) {
	page, err := process.ReadPage(in)
	if err != nil {
		return metricSample{}, fmt.Errorf("sample the proxy: %w", err)
	}
	return metricSample{series: page.Series, kinds: page.Kinds, begun: page.Series["process_start_time_seconds"]}, nil
}

// lookAtLedgers finds blocks that were not given back, and reads of blocks that were. A D that was
// frozen reads such blocks after its requests were given up and their handles released, and no
// client gets the answer. Where no engine is frozen there are no such reads.
func (m *sampler) lookAtLedgers() {
	stale := 0
	for _, s := range m.s.fleet.prefill {
		s.look()
		_, n := s.books()
		stale += n
	}
	if stale > m.stale && m.s.tally.stage().calm() {
		m.s.verdict.Breach(invHandles, "reads of blocks that were no longer pinned", "%d in 5 s without a fault", stale-m.stale)
	}
	m.stale = stale
}

// lookAtProcess notes the resident memory.
func (m *sampler) lookAtProcess() {
	pid, _, since := m.s.proxy.now()
	rss, err := process.RSS(pid)
	if err == nil && time.Since(since) > rssSettled {
		m.rss = append(m.rss, rssSample{time.Now(), pid, rss})
	}
}

// rssSettled is how long a new process's memory grows because of its load alone.
const rssSettled = 10 * time.Second

// slope returns the growth of the last process's memory between two moments, in KiB a minute, by
// least squares. ok is false if there is too little data.
func (m *sampler) slope(from, to time.Time) (kib float64, ok bool) {
	if len(m.rss) == 0 {
		return 0, false
	}
	pid := m.rss[len(m.rss)-1].pid
	var n, sx, sy, sxx, sxy float64
	for _, r := range m.rss {
		if r.pid != pid || r.at.Before(from) || r.at.After(to) {
			continue
		}
		x, y := r.at.Sub(from).Minutes(), r.rss/1024
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; n >= 20 && d > 0 {
		return (n*sxy - sx*sy) / d, true
	}
	return 0, false
}

// most returns the highest resident memory seen, in bytes.
func (m *sampler) most() float64 {
	most := 0.0
	for _, r := range m.rss {
		most = max(most, r.rss)
	}
	return most
}

// openGauges names the gauges of the last sample that are not 0, except those that do not count
// anything held.
func (s metricSample) openGauges() []string {
	var all []string
	for name, value := range s.series {
		base, _, _ := strings.Cut(name, "{")
		if s.kinds[base] == "gauge" && strings.HasPrefix(base, "xpyd_") && !state(base) && value != 0 {
			all = append(all, fmt.Sprintf("%s %g", name, value))
		}
	}
	slices.Sort(all)
	return all
}

// state reports whether a gauge says how something is, or what was measured. Other gauges count
// what is held.
func state(name string) bool {
	return slices.Contains([]string{"xpyd_backend_ready", "xpyd_backend_up", "xpyd_build_info", "xpyd_ready", "xpyd_state_file_written"}, name) ||
		slices.ContainsFunc([]string{"xpyd_certificate_", "xpyd_config_", "xpyd_engine_", "xpyd_objective_", "xpyd_pair_", "xpyd_pool_", "xpyd_price_", "xpyd_reuse_"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// engines reports whether a counter is the engines' own. These begin at 0 when an engine restarts.
func engines(name string) bool {
	return strings.HasPrefix(name, "xpyd_engine_prefix_cache_") || strings.HasPrefix(name, "xpyd_engine_transfer")
}

func (s *soak) census(ctx context.Context) (c process.Census, err error) {
	pid, admin, _ := s.proxy.now()
	return process.TakeCensus(ctx, pid, admin)
}
