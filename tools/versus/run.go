package versus

import (
	"cmp"
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

	"golang.org/x/sys/unix"

	"xpyd/tools/process"
	"xpyd/tools/report"
)

// Options describe a run.
type Options struct {
	Program    string        // xpyd, if Xpyd names no build
	Self       string        // this program, whose command relay is a contender
	Xpyd       []string      // builds to compare, each name=path
	HAProxy    string        // the program; "" means as found in PATH
	VLLMRouter string        // the same
	Only       []string      // contenders; none means all that are installed
	Run        string        // regular expression of shapes
	Rounds     int           // of each measurement; odd, so that the median is one of them
	Window     time.Duration // length of a measurement
	Cores      int           // threads of a Go proxy, workers of nginx
	Load       string        // epoll, goroutines or both; "" means both
	Out        string        // directory of results
	Calls      bool          // count system calls, in a measurement of their own
	Docs       string        // directory of performance.md, to put the tables into it; "" means none
	Version    string        // of xpyd, for the record
}

// Validate reports options with which no run is possible.
func (o *Options) Validate() error {
	if o.Rounds < 1 || o.Window <= 0 || o.Cores < 1 {
		return fmt.Errorf("%d rounds of %v on %d cores: each must be more than 0", o.Rounds, o.Window, o.Cores)
	}
	if _, err := regexp.Compile(o.Run); err != nil {
		return fmt.Errorf("shapes: %w", err)
	}
	if err := validLoad(o.Load); err != nil {
		return err
	}
	for _, name := range o.Only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("contender %q is none of xpyd, nginx, relay, haproxy, vllm-router, direct", name)
		}
	}
	for _, x := range o.Xpyd {
		if name, path, ok := strings.Cut(x, "="); !ok || name == "" || path == "" {
			return fmt.Errorf("build %q is not of the form name=path", x)
		}
	}
	return nil
}

// fileLimit returns how many files a process may open here.
func fileLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return int(min(l.Max, 1<<20))
}

// wantFiles is how many files the largest crowd needs in one process: two connections for each
// stream. xpyd keeps the last tenth for its own.
const wantFiles = 10*(2*crowdWanted+200)/9 + 1

// crowdWanted is the largest number of streams that is tried.
const crowdWanted = 10_000

// raiseFileLimit asks for what the largest crowd needs. The processes that are started inherit it.
// It may not be granted.
func raiseFileLimit() {
	l := syscall.Rlimit{Cur: wantFiles, Max: wantFiles}
	if fileLimit() >= wantFiles || syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		l.Cur, l.Max = uint64(fileLimit()), uint64(fileLimit())
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) // the present limit must do then
	}
}

// run is one run.
type run struct {
	o          Options
	out        io.Writer
	contenders []contender
	results    *Results
	cpus       unix.CPUSet // that this process had at first
}

// Run measures. It writes tables to out as they come, and results.json, results.md and charts to
// Options.Out. A goal that is not met is no error, nor is a measurement that failed, because the
// results show both.
func Run(ctx context.Context, o Options, out io.Writer) error {
	if err := o.Validate(); err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // of this process, which is no contender
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return fmt.Errorf("make the directory of results: %w", err)
	}
	cpus, err := ownCPUs()
	if err != nil {
		return err
	}
	defer func() { _ = confine(cpus) }()
	r := &run{o: o, out: out, results: newResults(o), cpus: cpus}
	r.contenders = r.field()
	if !slices.ContainsFunc(r.contenders, func(c contender) bool { return c.name == nameNginx }) {
		r.results.Baseline = r.contenders[0].name // there is one, because Validate knows the names
	}
	if r.results.Floor, err = measureFloor(o.Window / 10); err != nil {
		return err
	}
	if err := r.rounds(ctx, r.work()); err != nil {
		return err
	}
	return report.Save(r.results, o.Out, o.Docs, out)
}

// crowd returns how many of the wanted streams the limit of open files allows.
func (r *run) crowd() int {
	raiseFileLimit()
	crowd := min(crowdWanted, (fileLimit()*9/10-100)/2)
	if crowd < crowdWanted {
		r.note("a process may open %d files here, and xpyd keeps a tenth of them for backends: the crowd is %s streams, not %s",
			fileLimit(), report.Thousands(int64(crowd)), report.Thousands(crowdWanted))
	}
	return crowd
}

// note adds what the reader of the results must know.
func (r *run) note(format string, args ...any) {
	r.results.Notes.Add(r.out, format, args...)
}

// field lists the contenders that take part, and notes those that cannot.
func (r *run) field() []contender {
	var all []contender
	for _, x := range r.o.Xpyd {
		name, path, _ := strings.Cut(x, "=")
		all = append(all, xpyd(name, path))
	}
	if len(all) == 0 {
		all = append(all, xpyd(nameXpyd, r.o.Program))
	}
	all = r.rivals(all)
	all = append(all, relay(r.o.Self), direct())
	return slices.DeleteFunc(all, func(c contender) bool { return !r.o.wants(c.name) })
}

// wants reports whether a contender is wanted. Builds that are named always are.
func (o *Options) wants(name string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, form(name)) || slices.ContainsFunc(o.Xpyd, func(x string) bool { return strings.HasPrefix(x, name+"=") })
}

// rivals adds those that are installed.
func (r *run) rivals(all []contender) []contender {
	for _, x := range []struct {
		program, path, missing string
		make                   func(string) []contender
	}{
		{"nginx", "", "no ratio to it; on Debian: apt-get install nginx-light", nginx},
		{"haproxy", r.o.HAProxy, "measured without it; on Debian: apt-get install haproxy, or --haproxy PATH", one(haproxy)},
		{"vllm-router", r.o.VLLMRouter, "measured without it; pip install vllm-router, or --vllm-router PATH", one(vllmRouter)},
	} {
		path := process.Find(x.program, x.path)
		switch {
		case !r.o.wants(x.program):
		case path != "":
			all = append(all, x.make(path)...)
		default:
			r.note("%s is not installed: %s", x.program, x.missing)
		}
	}
	return all
}

// takesPart reports whether a shape is for the contender.
func takesPart(s shape, c contender) bool {
	if s.among == nil {
		return c.name != nameDirect
	}
	return slices.Contains(s.among, form(c.name)) || c.xpyd && slices.Contains(s.among, nameXpyd)
}

// measure starts engines and the contender, loads it, and ends them.
func (r *run) measure(ctx context.Context, load string, s shape, c contender) (values map[metric]float64, err error) {
	err = r.stage(ctx, load, s, c, func(p *running, dir string) (asked int, err error) {
		values, asked, err = r.observe(ctx, load, s, p)
		return asked, err
	})
	return values, err
}

// stage starts engines and a contender for work, and ends them after it. work returns how many of
// its requests were answered.
func (r *run) stage(ctx context.Context, load string, s shape, c contender, work func(p *running, dir string) (asked int, err error)) (err error) {
	e, err := startFleet(load, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	dir, err := filepath.Abs(filepath.Join(r.o.Out, "run"))
	if err != nil {
		return fmt.Errorf("find the directory of the run: %w", err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return fmt.Errorf("make the directory of the run: %w", err)
	}
	p, err := c.start(ctx, target{prefill: e.prefill, decode: e.decode, dir: dir, cores: cmp.Or(s.cores, r.o.Cores)})
	if err != nil {
		return err
	}
	if p.Process != nil {
		defer p.Stop()
	}
	asked, err := work(p, dir)
	if n := e.refused.Load(); n > 0 && err == nil {
		err = fmt.Errorf("%d requests reached an engine without a length", n)
	}
	if err == nil && c.legs == 2 && s.prefills > 0 && e.prefilled.Load() < int64(asked) {
		err = fmt.Errorf("%d of %d requests reached a prefill engine", e.prefilled.Load(), asked)
	}
	return err
}

// look is what is compared between both ends of a window.
type look struct {
	proxy process.Usage
	all   busy
}

func lookAt(p *running) (l look, err error) {
	if l.all, err = lookAround(); err != nil || p.Process == nil {
		return l, err
	}
	l.proxy, err = p.Usage()
	return l, err
}

// load returns the shape's load, with the times of this run.
func (r *run) load(s shape) load {
	l := s.load
	l.want = s.pace.events
	l.window, l.warm = max(s.least, r.o.Window*time.Duration(max(1, s.stretch))), min(warmTime, r.o.Window/2)
	return l
}

// observe loads a contender and watches it meanwhile. asked returns how many requests it has
// answered, or begun to answer.
func (r *run) observe(ctx context.Context, load string, s shape, p *running) (values map[metric]float64, asked int, err error) {
	if err := settle(ctx, s, p); err != nil {
		return nil, 0, err
	}
	idle, err := lookAt(p)
	if err != nil {
		return nil, 0, err
	}
	var begin, end look
	l := r.load(s)
	seen, err := runLoad(ctx, load, p.addr, l, func(last bool) (err error) {
		if last {
			end, err = lookAt(p)
		} else {
			begin, err = lookAt(p)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	cpu := end.proxy.CPU - begin.proxy.CPU
	values = figures(seen, l.conns, cpu, idle.proxy.RSS, end.proxy.RSS)
	values[othersCPU] = foreign(begin.all, end.all, cpu)
	if s.pace.interval > 0 && !s.pace.hold && s.load.pause == 0 {
		values[paceKept] = values[eventsS] * s.pace.interval.Seconds() / float64(l.conns) * 100
	}
	return values, max(l.conns, seen.Requests), nil
}

// figures returns all metrics that the counts give. CPU and memory of a contender without a process
// are 0.
func figures(seen counts, conns int, cpu, idle, rss float64) map[metric]float64 {
	slices.Sort(seen.delays)
	slices.Sort(seen.ttfts)
	us := func(ns []int64, p float64) float64 { return report.Percentile(ns, p, int64(time.Microsecond)) }
	per := func(n int) float64 {
		if n == 0 {
			return math.NaN()
		}
		return cpu / float64(n) * 1e6
	}
	return map[metric]float64{
		cpuRequest: per(seen.Requests), cpuEvent: per(seen.Events),
		requestsS: float64(seen.Requests) / seen.Seconds, eventsS: float64(seen.Events) / seen.Seconds,
		delay50: us(seen.delays, 50), delay99: us(seen.delays, 99), delay999: us(seen.delays, 99.9),
		ttft50: us(seen.ttfts, 50), ttft99: us(seen.ttfts, 99),
		kibStream: (rss - idle) / oneKiB / float64(conns), rssMiB: rss / oneKiB / oneKiB,
	}
}
