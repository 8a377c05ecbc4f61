package admin

import (
	"net/http"

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

func (p *pages) advice(w http.ResponseWriter, _ *http.Request) {
	writeIndented(w, adviceEntry{p.cfg.Router.Snapshot().Advice(), p.cfg.Router.Prices(), p.cfg.Router.StallShare()})
}
