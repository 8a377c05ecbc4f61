package engines

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/bench/result"
)

const (
	// Pace is the time between two lines, the same as vLLM's.
	Pace = 10 * time.Second

	readTime    = 5 * time.Second        // longest time of one reading
	settleTime  = 300 * time.Millisecond // between two readings at the end: an engine counts its last step after the client has the token
	settleReads = 5
	longestPage = 16 << 20
)

// glances are the moments of the first readings, which print nothing: a run that is shorter than Pace has peaks too. A
// reading costs an engine some milliseconds, so later ones come with the lines.
func glances() []time.Duration {
	return []time.Duration{250 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 7 * time.Second}
}

// Watcher watches engines during a run.
type Watcher struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	watched []*watched
}

// watched is one engine. Its fields belong to the goroutine that reads it, and to Stop after that.
type watched struct {
	Spec
	http *http.Client
	say  func(string)

	version     string
	first, last page
	at          time.Time // of last
	peak        values
	failed      int
	problem     string // why there is no first page
	restarted   bool

	perToken *perToken // of all engines
}

// perToken is how many bytes of KV a token of the model has, as the transfers of some engine show. Bits of a float64; 0: not
// known. It is a little too much if prompts are short, as transfers have whole blocks.
type perToken struct{ atomic.Uint64 }

func (b *perToken) learn(v values) {
	if v[transferBytes] > 0 && v[pulled] > 0 {
		b.Store(math.Float64bits(v[transferBytes] / v[pulled]))
	}
}

// bytes is the size of tokens; NaN: not known.
func (b *perToken) bytes(tokens float64) float64 {
	if each := math.Float64frombits(b.Load()); each > 0 {
		return tokens * each
	}
	return math.NaN()
}

// Watch reads each engine once, and then at every pace until Stop. say gets the lines, one at a time
// for each engine.
func Watch(ctx context.Context, specs []Spec, pace time.Duration, insecure bool, say func(string)) *Watcher {
	client := &http.Client{Transport: &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure},
	}}
	w, each := &Watcher{}, &perToken{}
	var began sync.WaitGroup
	for _, s := range specs {
		e := &watched{Spec: s, http: client, say: say, peak: unknown(), perToken: each}
		w.watched = append(w.watched, e)
		began.Go(func() { e.begin(ctx) })
	}
	began.Wait()
	ctx, w.stop = context.WithCancel(ctx)
	for _, e := range w.watched {
		w.running.Go(func() { e.watch(ctx, pace) })
	}
	return w
}

// begin takes the page that the run counts from.
func (e *watched) begin(ctx context.Context) {
	p, err := e.read(ctx)
	if err != nil {
		e.problem = "not read when the run began: " + err.Error()
		return
	}
	e.first, e.last, e.at = p, p, time.Now()
	e.perToken.learn(p.whole())
	e.version = e.readVersion(ctx)
}

func (e *watched) watch(ctx context.Context, pace time.Duration) {
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	began, looks := time.Now(), glances()
	glance := time.NewTimer(looks[0])
	defer glance.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-glance.C:
			if p, err := e.read(ctx); err == nil {
				e.raise(p.whole())
			}
			if looks = looks[1:]; len(looks) > 0 && looks[0] < pace {
				glance.Reset(time.Until(began.Add(looks[0])))
			}
			continue
		case <-ticks.C:
		}
		switch now, err := e.tick(ctx); {
		case err == nil:
			e.raise(now)
		case ctx.Err() == nil:
			e.say(e.Name + " " + err.Error())
		}
	}
}

// raise keeps the highest gauges of the readings within the run. The last reading comes after the
// load, and says nothing about it.
func (e *watched) raise(now values) {
	for _, f := range []figure{running, waiting, usage} {
		if math.IsNaN(e.peak[f]) || now[f] > e.peak[f] {
			e.peak[f] = now[f]
		}
	}
}

// tick reads the engine and prints its line.
func (e *watched) tick(ctx context.Context) (values, error) {
	p, err := e.read(ctx)
	if err != nil {
		if ctx.Err() == nil {
			e.failed++
		}
		return values{}, err
	}
	e.perToken.learn(p.whole())
	now := time.Now()
	if e.problem != "" {
		return p.whole(), nil
	}
	if p.after(e.last) {
		e.restarted = true
		e.first = p
	} else {
		for _, rank := range p.names() {
			e.say(e.Name + " " + line(rankNumber(rank), p.ranks[rank], e.last.ranks[rank], e.first.ranks[rank], now.Sub(e.at)) + e.blocksInUse(p, rank))
		}
	}
	e.last, e.at = p, now
	return p.whole(), nil
}

// blocksInUse is the end of a rank's line, which vLLM's has not: how many KV blocks are in use, and their size if some engine's
// transfers show it.
func (e *watched) blocksInUse(p page, rank string) string {
	blocks, use := p.cache.blocks/float64(len(p.ranks)), p.ranks[rank][usage]
	if !(blocks > 0) || math.IsNaN(use) {
		return ""
	}
	text := fmt.Sprintf(", KV blocks: %.0f of %.0f", use*blocks, blocks)
	if n := e.perToken.bytes(use * blocks * p.cache.size); !math.IsNaN(n) {
		text += fmt.Sprintf(", about %.2f GiB", n/(1<<30))
	}
	return text
}

// after reports whether the process of p began after that of old.
func (p page) after(old page) bool {
	return p.started > old.started || p.whole()[generated] < old.whole()[generated] || p.whole()[prompt] < old.whole()[prompt]
}

// read asks for the metrics.
func (e *watched) read(ctx context.Context) (p page, err error) {
	err = e.get(ctx, "/metrics", func(in io.Reader) error {
		p, err = readPage(in)
		return err
	})
	return p, err
}

// readVersion is the engine's version; "" where it does not say.
func (e *watched) readVersion(ctx context.Context) string {
	var v struct {
		Version string `json:"version"`
	}
	_ = e.get(ctx, "/version", func(in io.Reader) error { return json.NewDecoder(in).Decode(&v) }) // the version stays ""
	return v.Version
}

func (e *watched) get(ctx context.Context, path string, read func(io.Reader) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+path, nil)
	if err != nil {
		return fmt.Errorf("ask for %s: %w", path, err)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask for %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for %s: %s", path, resp.Status)
	}
	return read(io.LimitReader(resp.Body, longestPage))
}

// Stop reads the engines for the last time and returns what they did during the run. It also works
// after the end of ctx, because an interrupted run has engines too.
func (w *Watcher) Stop(ctx context.Context) []result.Engine {
	w.stop()
	w.running.Wait()
	if len(w.watched) == 0 {
		return nil
	}
	all := make([]result.Engine, len(w.watched))
	var ended sync.WaitGroup
	for i, e := range w.watched {
		ended.Go(func() { all[i] = e.end(context.WithoutCancel(ctx)) })
	}
	ended.Wait()
	for i, e := range w.watched { // when all have learned what a token has
		e.http.CloseIdleConnections()
		if c := e.last.cache; all[i].KVBlocks != nil {
			all[i].KVBytes = known(e.perToken.bytes(c.blocks * c.size))
		}
	}
	return all
}

// settle waits until the engine has counted all work of the run: until two readings in a row agree,
// or for a few readings if other clients keep the engine busy.
func (e *watched) settle(ctx context.Context) {
	counted := math.NaN()
	for range settleReads {
		time.Sleep(settleTime)
		p, err := e.read(ctx)
		if err != nil || p.whole()[generated] == counted {
			return
		}
		counted = p.whole()[generated]
	}
}

func (e *watched) end(ctx context.Context) result.Engine {
	e.settle(ctx)
	_, err := e.tick(ctx)
	if err != nil && e.problem == "" {
		e.problem = "not read when the run ended: " + err.Error()
	}
	r := result.Engine{Name: e.Name, Role: e.Role, URL: e.URL, Version: e.version, GPUs: e.GPUs, Failed: e.failed, Restarted: e.restarted, Problem: e.problem}
	r.PeakRunning, r.PeakWaiting, r.PeakUsage = known(e.peak[running]), known(e.peak[waiting]), known(e.peak[usage])
	if c := e.last.cache; c.blocks > 0 {
		r.KVBlocks, r.KVBlockTokens = known(c.blocks), known(c.size)
	}
	if e.problem != "" || e.restarted {
		return r
	}
	grew := e.last.whole().since(e.first.whole())
	for f, to := range map[figure]**float64{
		computed: &r.Computed, hit: &r.Hit, queried: &r.Queried, pulled: &r.Pulled, generated: &r.Generated, preemptions: &r.Preemptions,
		transfers: &r.Transfers, transferBytes: &r.TransferBytes, transferSeconds: &r.TransferSeconds, transferFailed: &r.TransferFailed,
	} {
		*to = known(grew[f])
	}
	return r
}

// known is nil for a figure that the engine does not have, since JSON has no NaN.
func known(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
