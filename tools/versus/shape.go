package versus

import (
	"fmt"
	"slices"
	"time"

	"xpyd/tools/report"
)

// shape is one kind of work, with what is measured of it.
type shape struct {
	name  string
	title string
	load  load
	pace  pacing
	// prefills and decodes are engines. Proxies of one leg use the decode engines alone.
	prefills, decodes int
	metrics           []metric
	bars              []bar
	among             []string      // contenders; nil means all but direct
	stretch           int           // lengthens the window of work that takes little CPU; 0 means 1
	least             time.Duration // of a window, in which a stream must begin
	rounds            int           // at most; 0 means as many as the run has
	// cores is how many threads a proxy has, while it and the load may use the whole machine. 0 means
	// those of the run, which are then all that the proxy and its load have.
	cores int
	load1 string // the one load that can use so many cores; "" means all loads
}

type metric = report.Metric

// These are the figures, with their units. A lower one is better, except for rates.
const (
	cpuRequest metric = "CPU/request µs"
	cpuEvent   metric = "CPU/event µs"
	requestsS  metric = "requests/s"
	eventsS    metric = "events/s"
	delay50    metric = "delay p50 µs"
	delay99    metric = "delay p99 µs"
	delay999   metric = "delay p99.9 µs"
	ttft50     metric = "TTFT p50 µs"
	ttft99     metric = "TTFT p99 µs"
	kibStream  metric = "KiB/stream"
	rssMiB     metric = "RSS MiB"

	// These are about the measurement itself.
	othersCPU metric = "other CPU %" // of the machine, used by what is not measured
	paceKept  metric = "pace kept %" // of the events that were due; if less, the machine was too busy
)

// bar is a goal of xpyd.
type bar struct {
	metric  metric
	to      string // a contender; "" if limit is absolute
	base    string // another shape's figure of the same contender; "" if none
	limit   float64
	atLeast bool
	above   string // a contender whose figure is subtracted from both; "" if none
}

func atMost(limit float64, m metric, to string) bar { return bar{metric: m, to: to, limit: limit} }

// warmTime is how long the load runs before its window. In a quick run it is shorter.
const warmTime = time.Second

const oneKiB = 1 << 10

// growthRounds are enough for how a cost grows.
const growthRounds = 3

// shapes returns all that is measured. crowd is how many streams of the largest crowd the limit of
// open files allows, and cores how many the machine has.
func shapes(crowd, cores int) []shape {
	return slices.Concat(requestShapes(), streamShapes(crowd), scaleShapes(), coreShapes(cores))
}

func requestShapes() []shape {
	whole := func(name, title string, conns, body int, bars ...bar) shape {
		return shape{
			name: name, title: title, load: load{conns: conns, body: body}, prefills: 1, decodes: 1,
			metrics: []metric{cpuRequest, requestsS, rssMiB}, bars: bars,
		}
	}
	return []shape{
		whole("json", "JSON of 1 KiB, not streamed, 64 at once", 64, oneKiB,
			atMost(2.2, cpuRequest, nameNginx), bar{metric: requestsS, to: nameNginx, limit: 0.5, atLeast: true}),
		whole("body-512k", "bodies of 512 KiB, not streamed, 8 at once", 8, 512*oneKiB, atMost(2.5, cpuRequest, nameNginx)),
		whole("body-4m", "bodies of 4 MiB, not streamed, 4 at once", 4, 4*oneKiB*oneKiB, atMost(2.5, cpuRequest, nameNginx)),
		{
			name: "ttft", title: "8 streams on an idle machine", prefills: 1, decodes: 1,
			load: load{conns: 8, chat: true, body: oneKiB, pause: 100 * time.Millisecond, delays: true}, pace: pacing{events: 4},
			metrics: []metric{ttft50, ttft99}, bars: []bar{atMost(2.2, ttft50, nameNginx)},
			among: []string{nameXpyd, nameNginx, nameRelay, nameHAProxy, nameRouter, nameDirect},
		},
	}
}

// paced has streams of events at a pace, which do not end.
func paced(name, title string, streams int, every time.Duration, bars ...bar) shape {
	return shape{
		name: name, title: title, prefills: 1, decodes: 1,
		load: load{conns: streams, chat: true, body: oneKiB, delays: true}, pace: pacing{events: 1 << 30, interval: every},
		metrics: []metric{cpuEvent, delay50, delay99, delay999, eventsS, rssMiB}, bars: bars,
		among: []string{nameXpyd, nameNginx, nameRelay, nameHAProxy, nameRouter, nameDirect},
	}
}

func streamShapes(crowd int) []shape {
	bars := func() []bar {
		return []bar{atMost(1.25, cpuEvent, nameNginx), atMost(1.2, delay99, nameNginx), atMost(1, cpuEvent, nameRouter), atMost(1, delay99, nameRouter)}
	}
	few := paced("paced-64", "64 streams, an event each 20 ms", 64, 20*time.Millisecond, bars()...)
	few.stretch = 2
	return append([]shape{
		{
			name: "flood", title: "64 streams of 200 events of 220 B, unpaced", prefills: 1, decodes: 1,
			load: load{conns: 64, chat: true, body: oneKiB}, pace: pacing{events: 200},
			metrics: []metric{cpuEvent, eventsS}, bars: []bar{atMost(1.3, cpuEvent, nameNginx)},
		},
		few,
		paced("paced-500", "500 streams, an event each 20 ms", 500, 20*time.Millisecond, bars()...),
		{
			name: "open-2000", title: "2,000 open streams that wait", prefills: 1, decodes: 1,
			load: load{conns: 2000, chat: true, body: oneKiB, hold: 2}, pace: pacing{events: 2, interval: 20 * time.Millisecond, hold: true},
			metrics: []metric{kibStream, rssMiB}, bars: []bar{{metric: kibStream, limit: 28}},
		},
		{
			name: "flow-2000", title: "2,000 open streams, 4,000 events/s", prefills: 1, decodes: 1,
			load: load{conns: 2000, chat: true, body: oneKiB}, pace: pacing{events: 1 << 30, interval: 500 * time.Millisecond},
			metrics: []metric{kibStream, rssMiB}, bars: []bar{{metric: kibStream, limit: 28}},
		},
		starting("ttft-64", "64 streams of 50 events, one each 20 ms", 64),
		starting("ttft-500", "500 streams of 50 events, one each 20 ms", 500),
	}, crowds(crowd)...)
}

// starting has streams that end and begin again while the others flow.
func starting(name, title string, streams int) shape {
	return shape{
		name: name, title: title, prefills: 1, decodes: 1,
		load: load{conns: streams, chat: true, body: oneKiB, pause: 100 * time.Millisecond, delays: true}, pace: pacing{events: 50, interval: 20 * time.Millisecond},
		least:   1200 * time.Millisecond, // a stream lasts a second, and the pause follows
		metrics: []metric{ttft50, ttft99}, bars: []bar{atMost(2.2, ttft50, nameNginx)},
		among: []string{nameXpyd, nameNginx, nameRelay, nameHAProxy, nameRouter, nameDirect},
	}
}

// crowds are few and many streams that make the same number of events.
func crowds(crowd int) []shape {
	const rate = 5000 // events/s
	small := paced("crowd-100", "100 open streams, 5,000 events/s", 100, 100*time.Second/rate)
	large := paced("crowd-10k", report.Thousands(int64(crowd))+" open streams, 5,000 events/s", crowd, time.Duration(crowd)*time.Second/rate,
		bar{metric: cpuEvent, base: "crowd-100", limit: 1.1})
	small.stretch, large.stretch = 2, 2
	small.rounds, large.rounds = growthRounds, growthRounds
	small.among, large.among = []string{nameXpyd, nameNginx, nameRelay}, []string{nameXpyd, nameNginx, nameRelay}
	return []shape{small, large}
}

// scaleShapes have requests one after the other, so that no queue hides in their TTFT.
func scaleShapes() []shape {
	among := []string{nameXpyd, nameNginx, nameDirect}
	single := func(name, title string, body, prefills, decodes int) shape {
		return shape{
			name: name, title: title, prefills: prefills, decodes: decodes, among: among,
			load: load{conns: 1, chat: true, body: body, delays: true}, pace: pacing{events: 1},
			metrics: []metric{cpuRequest, ttft50, ttft99}, rounds: growthRounds,
		}
	}
	many := shape{
		name: "json-512", title: "JSON of 1 KiB, 64 at once, over 512 backends", prefills: 256, decodes: 256,
		load: load{conns: 64, body: oneKiB}, metrics: []metric{cpuRequest, requestsS, rssMiB}, among: []string{nameXpyd, nameNginx}, rounds: growthRounds,
		bars: []bar{{metric: cpuRequest, base: "json", limit: 1.1}},
	}
	return []shape{
		single("prompt-1k", "prompt of 1k tokens", 4_000, 1, 1),
		single("prompt-10k", "prompt of 10k tokens", 40_000, 1, 1),
		single("prompt-100k", "prompt of 100k tokens", 400_000, 1, 1),
		single("prompt-1m", "prompt of 1M tokens", 4_000_000, 1, 1),
		single("backends-1", "1 backend: decode alone, one leg", 4_000, 0, 1),
		single("backends-2", "2 backends", 4_000, 1, 1),
		single("backends-8", "8 backends", 4_000, 4, 4),
		single("backends-64", "64 backends", 4_000, 32, 32),
		single("backends-512", "512 backends", 4_000, 256, 256),
		many,
	}
}

// Core counts from which the growth from 2 is judged, and the rate is.
const (
	judgedCores = 16
	ratedCores  = 32
)

// coreCounts are the powers of two up to cores.
func coreCounts(cores int) []int {
	var all []int
	for n := 1; n <= cores; n *= 2 {
		all = append(all, n)
	}
	return all
}

// coreShapes have the same work for proxies of more and more threads. Two epoll threads could not
// keep them busy, so this is for the load of goroutines alone.
func coreShapes(cores int) []shape {
	var all []shape
	for _, n := range coreCounts(cores) {
		one := shape{
			name: coresName("json", n), title: "JSON of 1 KiB, 256 at once, " + threads(n), prefills: 1, decodes: 1,
			load: load{conns: 256, body: oneKiB}, metrics: []metric{cpuRequest, requestsS, rssMiB},
		}
		many := paced(coresName("paced", n), "500 streams, an event each 20 ms, "+threads(n), 500, 20*time.Millisecond)
		if n >= judgedCores {
			one.bars = []bar{{metric: cpuRequest, base: coresName("json", 2), limit: 1.4}}
			many.bars = []bar{{metric: cpuEvent, base: coresName("paced", 2), limit: 1.3}}
		}
		if n >= ratedCores {
			one.bars = append(one.bars, bar{metric: requestsS, limit: 200_000, atLeast: true})
		}
		all = append(all, one, many)
	}
	for i, n := range all {
		n.cores, n.load1, n.rounds = coreCounts(cores)[i/2], loadGoroutines, growthRounds
		n.among = []string{nameXpyd, nameNginx}
		all[i] = n
	}
	return all
}

func coresName(work string, n int) string { return fmt.Sprintf("cores-%d-%s", n, work) }

func threads(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}
