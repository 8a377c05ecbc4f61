package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"xpyd/tools/exposition"
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
		if !m.kept && len(m.s.verdict.of("")) > 0 {
			m.kept = true
			m.s.keepState(ctx, "first")
		}
		for _, s := range m.s.fleet.all() {
			if s.died() {
				m.s.verdict.breach(invHandles, "an engine that died of what it was sent", "%s", s.Name())
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
			m.s.verdict.breach(invGauges, "a gauge below zero", "%s %g", name, value)
		case next.kinds[base] != "gauge" && next.kinds[base] != "summary" && !engines(base) && next.begun == m.last.begun && value < m.last.series[name]:
			m.s.verdict.breach(invGauges, "a counter that went back", "%s %g after %g", name, value, m.last.series[name])
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
	page, err := exposition.Read(in)
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
		m.s.verdict.breach(invHandles, "reads of blocks that were no longer pinned", "%d in 5 s without a fault", stale-m.stale)
	}
	m.stale = stale
}

// lookAtProcess notes the resident memory.
func (m *sampler) lookAtProcess() {
	pid, _, since := m.s.proxy.now()
	rss, err := residentMemory(pid)
	if err == nil && time.Since(since) > rssSettled {
		m.rss = append(m.rss, rssSample{time.Now(), pid, rss})
	}
}

// rssSettled is how long a new process's memory grows because of its load alone.
const rssSettled = 10 * time.Second

func residentMemory(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read resident memory: %w", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kib float64
	if _, err := fmt.Sscanf(rest, "%f kB", &kib); err != nil {
		return 0, fmt.Errorf("read resident memory: %w", err)
	}
	return kib * 1024, nil
}

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
	return slices.Contains([]string{"xpyd_backend_up", "xpyd_build_info", "xpyd_config_last_reload_successful", "xpyd_ready"}, name) ||
		slices.ContainsFunc([]string{"xpyd_engine_", "xpyd_pool_", "xpyd_price_"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// engines reports whether a counter is the engines' own. These begin at 0 when an engine restarts.
func engines(name string) bool { return strings.HasPrefix(name, "xpyd_engine_prefix_cache_") }

// soakCensus is what a process of the proxy holds while it has no requests.
type soakCensus struct {
	goroutines, fds int
	heap, rss       float64 // bytes; heap after a collection
}

func (c soakCensus) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, heap %.1f MiB, RSS %.1f MiB", c.goroutines, c.fds, c.heap/(1<<20), c.rss/(1<<20))
}

func (s *soak) takeSoakCensus(ctx context.Context) (c soakCensus, err error) {
	pid, admin, _ := s.proxy.now()
	return takeCensusOf(ctx, pid, admin)
}

// takeCensusOf asks the process of the proxy at that admin port, and the kernel.
func takeCensusOf(ctx context.Context, pid int, admin string) (c soakCensus, err error) {
	for range 2 { // the second collection drops a pool's content
		if _, err := fetch(ctx, "http://"+admin+"/debug/pprof/heap?gc=1"); err != nil {
			return c, err
		}
	}
	dump, err := fetch(ctx, "http://"+admin+"/debug/pprof/goroutine?debug=1")
	if err != nil {
		return c, err
	}
	if c.goroutines, err = countGoroutines(string(dump)); err != nil {
		return c, err
	}
	series, err := scrape(ctx, admin)
	if err != nil {
		return c, err
	}
	c.heap = series["go_memstats_heap_alloc_bytes"]
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return c, fmt.Errorf("count the proxy's descriptors: %w", err)
	}
	c.fds = len(fds)
	c.rss, err = residentMemory(pid)
	return c, err
}

// smallest keeps the lower figures.
func (c soakCensus) smallest(o soakCensus) soakCensus {
	return soakCensus{min(c.goroutines, o.goroutines), min(c.fds, o.fds), min(c.heap, o.heap), min(c.rss, o.rss)}
}

// countGoroutines reads a goroutine profile with debug=1. It does not count fasthttp's idle
// workers, which stay for 10 to 20 s.
func countGoroutines(profile string) (n int, err error) {
	for record := range strings.SplitSeq(profile, "\n\n") {
		counts, frames, found := strings.Cut(record, " @ ")
		if !found {
			continue
		}
		if _, last, ok := strings.Cut(counts, "\n"); ok {
			counts = last // after the profile's title
		}
		k, err := strconv.Atoi(counts)
		if err != nil {
			return 0, fmt.Errorf("count the proxy's goroutines: %q", counts)
		}
		_, inner, _ := strings.Cut(frames, "\n")
		if inner, _, _ = strings.Cut(inner, "\n"); !strings.Contains(inner, poolWorker) {
			n += k
		}
	}
	return n, nil
}

// fetch reads a whole page.
func fetch(ctx context.Context, url string) ([]byte, error) {
	resp, err := get(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: status %d: %w", url, resp.StatusCode, err)
	}
	return body, nil
}
