package process

import (
	"context"
	"fmt"
)

// Gauges are sums over the series of the proxy's /metrics.
type Gauges struct {
	InFlight, pinned, stranded, buffered, panics float64
	handles                                      map[string]float64 // xpyd_kv_handles_total by end, and those issued
}

func (g Gauges) String() string {
	return fmt.Sprintf("in flight %g, blocks pinned %g, stranded %g, body bytes %g; handles issued %g, burnt %g, released %g, drained %g, expired %g, lost %g",
		g.InFlight, g.pinned, g.stranded, g.buffered, g.handles["issued"], g.handles["burnt"], g.handles["released"],
		g.handles["drained"], g.handles["expired"], g.handles["lost"])
}

// Problems names what the proxy still holds, and panics.
func (g Gauges) Problems() []string {
	var all []string
	for _, m := range []struct {
		value float64
		what  string
	}{
		{g.InFlight, "requests in flight"}, {g.pinned, "blocks pinned"},
		{g.stranded, "blocks stranded"}, {g.buffered, "body bytes buffered"},
		{g.panics, "panics"},
	} {
		if m.value != 0 {
			all = append(all, fmt.Sprintf("the proxy counts %g %s", m.value, m.what))
		}
	}
	return all
}

// ReadGauges reads the /metrics of an admin port.
func ReadGauges(ctx context.Context, admin string) (Gauges, error) {
	page, err := PageOf(ctx, "http://"+admin)
	if err != nil {
		return Gauges{}, err
	}
	sum := func(name string) float64 {
		n, _ := page.Sum(name) // a missing series counts as 0
		return n
	}
	handles := page.By("xpyd_kv_handles_total", "end")
	handles["issued"] = sum("xpyd_kv_handles_issued_total")
	return Gauges{
		InFlight: sum("xpyd_in_flight"), pinned: sum("xpyd_kv_blocks_pinned"), stranded: sum("xpyd_kv_blocks_stranded"),
		buffered: sum("xpyd_request_bytes_buffered"), panics: sum("xpyd_panics_total"), handles: handles,
	}, nil
}

// Series reads the values of an admin port's metrics, by series.
func Series(ctx context.Context, admin string) (map[string]float64, error) {
	page, err := PageOf(ctx, "http://"+admin)
	return page.Series, err
}
