package admin

import (
	"net/http"

	"xpyd/router"
	"xpyd/router/price"
)

// adviceEntry is the answer to GET /advice.
type adviceEntry struct {
	router.Advice
	// Prices are those of prefill, transfer and local work, which pd.mode auto compares.
	Prices map[string]price.Price `json:"prices"`
	// StallShare is the part of a prefill's time on a decode engine that the engine's running streams
	// lose.
	StallShare float64 `json:"stall_share"`
}

func (p *pages) adviceNow(snap *router.Snapshot) adviceEntry {
	return adviceEntry{snap.Advice(), p.cfg.Router.Prices(), p.cfg.Router.StallShare()}
}

func (p *pages) advice(w http.ResponseWriter, _ *http.Request) {
	writeIndented(w, p.adviceNow(p.cfg.Router.Snapshot()))
}
