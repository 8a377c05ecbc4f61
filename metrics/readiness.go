package metrics

// WatchReadiness adds the gauges of what /readyz says. It is called once.
func (m *Metrics) WatchReadiness(ready, degraded func() bool) {
	m.gauge("xpyd_ready", "1 while /readyz answers 200.", func() float64 { return flag(ready()) })
	m.gauge("xpyd_degraded", "1 while decode engines compute all prompts because no prefill engine is up, or all are drained or disabled.", func() float64 { return flag(degraded()) })
}
