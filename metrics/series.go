package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The series that each completion counts in are resolved once, because finding a series by its
// labels costs many times what adding to it does. A value of a closed set is given by its index.

// other is counted in place of an index outside the closed sets that New was given. That is a bug, but
// no request should end because of it.
const other = "other"

// counters are the series of one closed label.
type counters struct {
	vec *prometheus.CounterVec
	by  []prometheus.Counter
}

// resolved makes the series, so that a rate sees the first event. A value without a name has no
// series.
func resolved(vec *prometheus.CounterVec, names []string) counters {
	c := counters{vec: vec, by: make([]prometheus.Counter, len(names))}
	for i, name := range names {
		if name != "" {
			c.by[i] = vec.WithLabelValues(name)
		}
	}
	return c
}

func (c *counters) inc(i int) {
	if i < len(c.by) && c.by[i] != nil {
		c.by[i].Inc()
		return
	}
	c.vec.WithLabelValues(other).Inc()
}

// counterPairs are the series of two closed labels. The series of one first value are together.
type counterPairs struct {
	vec           *prometheus.CounterVec
	first, second []string
	by            []prometheus.Counter
}

func resolvedPairs(vec *prometheus.CounterVec, first, second []string) counterPairs {
	c := counterPairs{vec: vec, first: first, second: second}
	for _, a := range first {
		for _, b := range second {
			c.by = append(c.by, vec.WithLabelValues(a, b))
		}
	}
	return c
}

func (c *counterPairs) inc(i, j int) {
	if i < len(c.first) && j < len(c.second) {
		c.by[i*len(c.second)+j].Inc()
		return
	}
	c.vec.WithLabelValues(other, other).Inc()
}

// names returns the label values of the series by[at].
func (c *counterPairs) names(at int) (first, second string) {
	return c.first[at/len(c.second)], c.second[at%len(c.second)]
}

// observers are the histograms of one closed label.
type observers struct {
	vec *prometheus.HistogramVec
	by  []prometheus.Observer
}

func resolvedObservers(vec *prometheus.HistogramVec, names []string) observers {
	o := observers{vec: vec}
	for _, name := range names {
		o.by = append(o.by, vec.WithLabelValues(name))
	}
	return o
}

func (o *observers) observe(i int, v float64, trace string) {
	if i < len(o.by) {
		observe(o.by[i], v, trace)
		return
	}
	observe(o.vec.WithLabelValues(other), v, trace)
}

// observe adds v to a histogram. A trace makes it the exemplar of its bucket.
func observe(o prometheus.Observer, v float64, trace string) {
	if trace == "" {
		o.Observe(v)
		return
	}
	o.(prometheus.ExemplarObserver).ObserveWithExemplar(v, prometheus.Labels{"trace_id": trace})
}

// lazyObservers are the histograms of one or two closed labels, in rows and columns. The first
// observation makes a histogram, because an empty one would add many lines to each scrape.
type lazyObservers struct {
	vec           *prometheus.HistogramVec
	labels        func(i, j int) []string
	rows, columns int
	by            []atomic.Pointer[prometheus.Observer]
}

func lazy(vec *prometheus.HistogramVec, rows, columns int, labels func(i, j int) []string) *lazyObservers {
	return &lazyObservers{vec: vec, labels: labels, rows: rows, columns: columns, by: make([]atomic.Pointer[prometheus.Observer], rows*columns)}
}

func (l *lazyObservers) observe(i, j int, v float64, trace string) {
	if i >= l.rows || j >= l.columns {
		observe(l.vec.WithLabelValues(l.labels(i, j)...), v, trace)
		return
	}
	at := &l.by[i*l.columns+j]
	o := at.Load()
	if o == nil {
		made := l.vec.WithLabelValues(l.labels(i, j)...)
		o = &made
		at.Store(o)
	}
	observe(*o, v, trace)
}

// nameOf returns the label value of an index.
func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return other
}
