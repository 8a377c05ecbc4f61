package proxy

import (
	"net/http"

	"xpyd/metrics"
	"xpyd/router"
	"xpyd/router/price"
)

// adviceEntry is GET /advice.
type adviceEntry struct {
	router.Advice
	// Prices are what pd.mode auto goes by: of prefill, transfer and local work.
	Prices map[string]price.Price `json:"prices"`
	// StallShare is how much of the time of a prefill on a decode engine its running
	// streams lose.
	StallShare float64 `json:"stall_share"`
}

func (s *Server) adminAdvice(w http.ResponseWriter, _ *http.Request) {
	writeIndented(w, adviceEntry{s.router.Snapshot().Advice(), s.router.Prices(), s.router.StallShare()})
}

// adviceGauges is the same for the metrics.
func (s *Server) adviceGauges() metrics.Advice {
	a := s.router.Snapshot().Advice()
	out := metrics.Advice{Loads: map[string]float64{}, Balanced: map[string]int{}, Prices: map[string]metrics.Price{}}
	for role, load := range map[router.Role]float64{router.Prefill: a.Prefill.Load, router.Decode: a.Decode.Load} {
		if load >= 0 {
			out.Loads[role.String()] = load
		}
	}
	if a.BalancedDecode > 0 {
		out.Balanced[router.Prefill.String()], out.Balanced[router.Decode.String()] = a.BalancedPrefill, a.BalancedDecode
	}
	for work, p := range s.router.Prices() {
		out.Prices[work] = metrics.Price{Fixed: p.Fixed, PerToken: p.PerToken}
	}
	return out
}
