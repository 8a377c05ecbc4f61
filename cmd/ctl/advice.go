package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"xpyd/router"
	"xpyd/router/price"
)

// advice is the part of GET /advice that Advice prints.
type advice struct {
	router.Advice
	Prices    map[string]price.Price `json:"prices"`
	Plans     []router.PlanNow       `json:"plans"`
	Objective *router.Reach          `json:"objective"`
}

// Advice prints which ratio of prefill to decode engines the traffic asks for, and with an objective, which split takes how
// much load within it. ttft and tpot are times, such as 500ms, or empty. asJSON prints GET /advice.
func (c *Client) Advice(ctx context.Context, w io.Writer, ttft, tpot string, asJSON bool) error {
	q := url.Values{}
	for name, value := range map[string]string{"ttft": ttft, "tpot": tpot} {
		if value != "" {
			q.Set(name, value)
		}
	}
	path := "/advice"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var raw json.RawMessage
	if _, err := c.call(ctx, http.MethodGet, path, nil, &raw); err != nil {
		return err
	}
	if asJSON {
		_, err := fmt.Fprintf(w, "%s\n", raw)
		return err
	}
	var a advice
	if err := json.Unmarshal(raw, &a); err != nil {
		return fmt.Errorf("GET %s: no answer of xpyd's admin port: %w", c.base+path, err)
	}
	_, err := io.WriteString(w, a.text())
	return err
}

func (a *advice) text() string {
	var b strings.Builder
	if a.Objective != nil {
		fmt.Fprintf(&b, "%s\n\n", a.Objective.Words)
	}
	if a.Objective == nil || a.Objective.Words != a.Arithmetic {
		fmt.Fprintf(&b, "%s\n\n", a.Arithmetic)
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "POOL\tENGINES\tBALANCED\tLOAD\tREQUESTS\tTOKENS\tBUSY")
	for _, p := range []struct {
		name     string
		balanced int
		of       *router.PoolAdvice
	}{{"prefill", a.BalancedPrefill, &a.Prefill}, {"decode", a.BalancedDecode, &a.Decode}} {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t%d\t%.1f s\n", p.name, p.of.Backends,
			known("%.0f", float64(p.balanced), a.BalancedPrefill+a.BalancedDecode > 0), known("%.2f", p.of.Load, p.of.Load >= 0), p.of.Requests, p.of.Tokens, p.of.BusySeconds)
	}
	if len(a.Prices) > 0 {
		_, _ = fmt.Fprintln(t, "\nPRICE OF\tA LEG\tA TOKEN\tERROR")
	}
	for _, kind := range []string{"prefill", "transfer", "local"} {
		if p, ok := a.Prices[kind]; ok {
			miss := "-"
			if p.Error != nil {
				miss = fmt.Sprintf("%.0f %%", 100**p.Error)
			}
			_, _ = fmt.Fprintf(t, "%s\t%.1f ms\t%.4f ms\t%s\n", kind, 1e3*p.Fixed, 1e3*p.PerToken, miss)
		}
	}
	_ = t.Flush() // a Builder takes all
	for _, p := range a.Plans {
		fmt.Fprintf(&b, "\n%s\n", plain(p.Why))
	}
	if a.Mismatch != "" {
		fmt.Fprintf(&b, "\n%s\n", plain(a.Mismatch))
	}
	return b.String()
}

// known is the number, or a dash.
func known(format string, x float64, is bool) string {
	if !is {
		return "-"
	}
	return fmt.Sprintf(format, x)
}
