// Package exposition reads the metrics of proxies and engines, in Prometheus' text format.
package exposition

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Page is the result of one scrape.
type Page struct {
	// Series are the values by name and labels, as the format writes them. A histogram has a series
	// for each bucket, its sum and its count.
	Series map[string]float64
	// Kinds has the kind of each metric by its name: gauge, counter, histogram, summary or untyped.
	Kinds map[string]string

	samples []sample
}

// sample is one series: its name and its labels, each as key="value".
type sample struct {
	name   string
	labels []string
	value  float64
}

func (s sample) String() string {
	if len(s.labels) == 0 {
		return s.name
	}
	return s.name + "{" + strings.Join(s.labels, ",") + "}"
}

// Read reads a page.
func Read(in io.Reader) (Page, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(in)
	if err != nil {
		return Page{}, fmt.Errorf("read metrics: %w", err)
	}
	p := Page{Series: map[string]float64{}, Kinds: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		p.Kinds[name] = strings.ToLower(families[name].GetType().String())
		for _, m := range families[name].GetMetric() {
			p.add(name, m)
		}
	}
	for _, s := range p.samples {
		p.Series[s.String()] = s.value
	}
	return p, nil
}

// add takes the series of one metric.
func (p *Page) add(name string, m *dto.Metric) {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, label(l.GetName(), l.GetValue()))
	}
	put := func(suffix string, value float64, more ...string) {
		p.samples = append(p.samples, sample{name + suffix, slices.Concat(labels, more), value})
	}
	switch {
	case m.GetGauge() != nil:
		put("", m.GetGauge().GetValue())
	case m.GetCounter() != nil:
		put("", m.GetCounter().GetValue())
	case m.GetUntyped() != nil:
		put("", m.GetUntyped().GetValue())
	case m.GetHistogram() != nil:
		h := m.GetHistogram()
		for _, b := range h.GetBucket() {
			put("_bucket", float64(b.GetCumulativeCount()), label("le", number(b.GetUpperBound())))
		}
		put("_sum", h.GetSampleSum())
		put("_count", float64(h.GetSampleCount()))
	case m.GetSummary() != nil:
		s := m.GetSummary()
		for _, q := range s.GetQuantile() {
			put("", q.GetValue(), label("quantile", number(q.GetQuantile())))
		}
		put("_sum", s.GetSampleSum())
		put("_count", float64(s.GetSampleCount()))
	}
}

// number returns a bound as the format writes it.
func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func label(name, value string) string {
	return name + `="` + strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(value) + `"`
}

// Sum adds up the series of the name that carry all labels, each given as key="value". It fails if no
// series has the name.
func (p Page) Sum(name string, labels ...string) (float64, error) {
	sum, found := 0.0, false
	for _, s := range p.samples {
		if s.name != name {
			continue
		}
		found = true
		if s.carries(labels) {
			sum += s.value
		}
	}
	if !found {
		return 0, fmt.Errorf("read metric %s: no such metric", name)
	}
	return sum, nil
}

// By adds up the series of the name for each value of the label key.
func (p Page) By(name, key string) map[string]float64 {
	sums := map[string]float64{}
	for _, s := range p.samples {
		if s.name != name {
			continue
		}
		for _, l := range s.labels {
			if value, ok := strings.CutPrefix(l, key+`="`); ok {
				sums[strings.TrimSuffix(value, `"`)] += s.value
			}
		}
	}
	return sums
}

func (s sample) carries(labels []string) bool {
	return !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(s.labels, l) })
}
