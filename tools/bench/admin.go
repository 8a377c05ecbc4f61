package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"xpyd/tools/exposition"
)

// gauges are sums over the series of the proxy's /metrics.
type gauges struct {
	inFlight, pinned, stranded, buffered, panics float64
	handles                                      map[string]float64 // xpyd_kv_handles_total by end
}

func (g gauges) String() string {
	return fmt.Sprintf("in flight %g, blocks pinned %g, stranded %g, body bytes %g; handles issued %g, burnt %g, released %g, drained %g, expired %g, lost %g",
		g.inFlight, g.pinned, g.stranded, g.buffered, g.handles["issued"], g.handles["burnt"], g.handles["released"],
		g.handles["drained"], g.handles["expired"], g.handles["lost"])
}

func (g gauges) problems() []string {
	var all []string
	for _, m := range []struct {
		value float64
		what  string
	}{
		{g.inFlight, "requests in flight"}, {g.pinned, "blocks pinned"},
		{g.stranded, "blocks stranded"}, {g.buffered, "body bytes buffered"},
		{g.panics, "panics"},
	} {
		if m.value != 0 {
			all = append(all, fmt.Sprintf("the proxy counts %g %s", m.value, m.what))
		}
	}
	return all
}

func readGauges(ctx context.Context, admin string) (gauges, error) {
	page, err := exposition.Of(ctx, "http://"+admin)
	if err != nil {
		return gauges{}, err
	}
	sum := func(name string) float64 {
		n, _ := page.Sum(name) // a missing series counts as 0
		return n
	}
	return gauges{
		inFlight: sum("xpyd_in_flight"), pinned: sum("xpyd_kv_blocks_pinned"), stranded: sum("xpyd_kv_blocks_stranded"),
		buffered: sum("xpyd_request_bytes_buffered"), panics: sum("xpyd_panics_total"), handles: page.By("xpyd_kv_handles_total", "end"),
	}, nil
}

// scrape reads the values of a port's metrics, by series.
func scrape(ctx context.Context, admin string) (map[string]float64, error) {
	page, err := exposition.Of(ctx, "http://"+admin)
	return page.Series, err
}

// get closes its connection, which would otherwise be counted.
func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	return resp, nil
}

// awaitReady waits until the proxy would serve a completion. It asks the data port, so that what
// the server starts with its first answer belongs to the baseline.
func awaitReady(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		resp, err := get(ctx, "http://"+addr+"/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("the proxy did not become ready within 10 s"), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// awaitPolled waits until each of so many engines has been read twice, because the connection that
// the proxy keeps for that belongs to the baseline. If none is read, it gives up soon.
func awaitPolled(ctx context.Context, admin string, engines int) error {
	const bound = 5 * time.Second
	for end := time.Now().Add(bound); time.Now().Before(end); {
		series, err := scrape(ctx, admin)
		if err != nil {
			return err
		}
		if series[`xpyd_engine_polls_total{result="ok"}`]+series[`xpyd_engine_polls_total{result="failed"}`] >= float64(2*engines) {
			return nil
		}
		sleepUntil(ctx, time.Now().Add(50*time.Millisecond))
	}
	return ctx.Err()
}
