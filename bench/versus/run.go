package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Options describe a run.
type Options struct {
	Executable string        // xpyd itself, for the relay, and for xpyd if Xpyd names no build
	Xpyd       []string      // builds to compare, each name=path
	Only       []string      // contenders; none: all that are installed
	Run        string        // regular expression of shapes
	Rounds     int           // of each measurement; odd, so that the median is one of them
	Window     time.Duration // length of a measurement
	Cores      int           // threads of a Go proxy, workers of nginx
	Out        string        // directory of results
}

// Validate tells what no run can be made of.
func (o *Options) Validate() error {
	if o.Rounds < 1 || o.Window <= 0 || o.Cores < 1 {
		return fmt.Errorf("%d rounds of %v on %d cores: each must be more than 0", o.Rounds, o.Window, o.Cores)
	}
	if _, err := regexp.Compile(o.Run); err != nil {
		return fmt.Errorf("shapes: %w", err)
	}
	for _, x := range o.Xpyd {
		if name, path, ok := strings.Cut(x, "="); !ok || name == "" || path == "" {
			return fmt.Errorf("build %q is not of the form name=path", x)
		}
	}
	return nil
}

// fileLimit is how many files a process here may open.
func fileLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return int(min(l.Max, 1<<20))
}

// wantFiles is what the largest crowd takes of one process: two connections a stream.
const wantFiles = 2*crowdWanted + 1000

// crowdWanted is the largest number of streams that is tried.
const crowdWanted = 10_000

// raiseFileLimit asks for what the largest crowd takes; the processes that are started
// inherit it. It may not be granted.
func raiseFileLimit() {
	l := syscall.Rlimit{Cur: wantFiles, Max: wantFiles}
	if fileLimit() >= wantFiles || syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		l.Cur, l.Max = uint64(fileLimit()), uint64(fileLimit())
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) // then what there is must do
	}
}

// run is one run.
type run struct {
	o          Options
	out        io.Writer
	contenders []contender
	results    *Results
}

// Run measures, writes tables to out as they come, and the results to Options.Out. The
// results are valid, as far as they go, also with an error.
func Run(ctx context.Context, o Options, out io.Writer) (*Results, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // of this process, which is no contender
	raiseFileLimit()
	r := &run{o: o, out: out, results: newResults(o)}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of results: %w", err)
	}
	r.contenders = r.field()
	crowd := min(crowdWanted, (fileLimit()-600)/2)
	if crowd < crowdWanted {
		r.note("a process may open %d files here: the crowd is %d streams, not %d", fileLimit(), crowd, crowdWanted)
	}
	match := regexp.MustCompile(o.Run)
	for _, s := range shapes(crowd) {
		if !match.MatchString(s.name) {
			continue
		}
		if err := r.shape(ctx, s); err != nil {
			return r.results, err
		}
	}
	return r.results, nil
}

// note says what the reader of the results must know.
func (r *run) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.results.Notes = append(r.results.Notes, text)
	fmt.Fprintln(r.out, "note: "+text)
}

// field lists who takes part, and notes who cannot.
func (r *run) field() []contender {
	var all []contender
	for _, x := range r.o.Xpyd {
		name, path, _ := strings.Cut(x, "=")
		all = append(all, xpyd(name, path))
	}
	if len(all) == 0 {
		all = append(all, xpyd(nameXpyd, r.o.Executable))
	}
	if path := found("nginx"); path != "" {
		all = append(all, nginx(path))
	} else {
		r.note("nginx is not installed: no ratio to it; on Debian: apt-get install nginx-light")
	}
	all = append(all, relay(r.o.Executable), direct())
	return slices.DeleteFunc(all, func(c contender) bool {
		return len(r.o.Only) > 0 && !slices.Contains(r.o.Only, c.name)
	})
}

// takesPart reports whether a shape is for the contender.
func takesPart(s shape, c contender) bool {
	if s.among == nil {
		return c.name != nameDirect
	}
	return slices.Contains(s.among, c.name) || c.xpyd && slices.Contains(s.among, nameXpyd)
}

// shape measures all contenders in turn, as often as there are rounds. The first of a
// round is another one each time.
func (r *run) shape(ctx context.Context, s shape) error {
	var names []contender
	for _, c := range r.contenders {
		if takesPart(s, c) {
			names = append(names, c)
		}
	}
	result := r.results.add(s, names)
	for round := range r.o.Rounds {
		for i := range names {
			c := names[(i+round)%len(names)]
			values, err := r.measure(ctx, s, c)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				r.note("%s, round %d, %s: %v", s.name, round+1, c.name, err)
			}
			result.record(c.name, values, err)
		}
	}
	result.print(r.out, r.results)
	return nil
}

// measure starts engines and the contender, loads it, and ends them.
func (r *run) measure(ctx context.Context, s shape, c contender) (values map[metric]float64, err error) {
	e, err := startEngines(s.prefills, s.decodes, s.pace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	dir, err := filepath.Abs(filepath.Join(r.o.Out, "run"))
	if err != nil {
		return nil, fmt.Errorf("find the directory of the run: %w", err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, fmt.Errorf("make the directory of the run: %w", err)
	}
	p, err := c.start(ctx, target{prefill: e.Prefill, decode: e.Decode, dir: dir, cores: r.o.Cores})
	if err != nil {
		return nil, err
	}
	if p.process != nil {
		defer p.stop()
	}
	values, err = r.observe(ctx, s, p)
	if n := e.refused.Load(); n > 0 && err == nil {
		err = fmt.Errorf("%d requests reached an engine without a length", n)
	}
	return values, err
}

// observe loads a contender and watches it meanwhile.
func (r *run) observe(ctx context.Context, s shape, p *running) (map[metric]float64, error) {
	var idle, begin, end usage
	look := func(to *usage) error {
		if p.process == nil {
			return nil
		}
		var err error
		*to, err = p.usage()
		return err
	}
	if err := look(&idle); err != nil {
		return nil, err
	}
	l := s.load
	l.window, l.warm = r.o.Window, min(warmTime, r.o.Window/2)
	seen, err := runLoad(ctx, p.addr, l, func(last bool) error {
		if last {
			return look(&end)
		}
		return look(&begin)
	})
	if err != nil {
		return nil, err
	}
	return figures(seen, l.conns, end.cpu-begin.cpu, idle.rss, end.rss), nil
}

// figures are all metrics that the counts tell. Of a contender without a process, CPU
// and memory are 0.
func figures(seen counts, conns int, cpu, idle, rss float64) map[metric]float64 {
	slices.Sort(seen.delays)
	slices.Sort(seen.ttfts)
	per := func(n int) float64 {
		if n == 0 {
			return math.NaN()
		}
		return cpu / float64(n) * 1e6
	}
	return map[metric]float64{
		cpuRequest: per(seen.Requests), cpuEvent: per(seen.Events),
		requestsS: float64(seen.Requests) / seen.Seconds, eventsS: float64(seen.Events) / seen.Seconds,
		delay50: percentile(seen.delays, 50), delay99: percentile(seen.delays, 99), delay999: percentile(seen.delays, 99.9),
		ttft50: percentile(seen.ttfts, 50), ttft99: percentile(seen.ttfts, 99),
		kibStream: (rss - idle) / oneKiB / float64(conns), rssMiB: rss / oneKiB / oneKiB,
	}
}
