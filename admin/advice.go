package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

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
	// Plans are those for engines without a role, see pd.mode.
	Plans []router.PlanNow `json:"plans,omitempty"`
	// Objective is the answer to an objective in the query.
	Objective *router.Reach `json:"objective,omitempty"`
}

func (p *pages) adviceNow(snap *router.Snapshot) adviceEntry {
	return adviceEntry{snap.Advice(), p.cfg.Router.Prices(), p.cfg.Router.StallShare(), router.Plans(p.cfg.Router), nil}
}

func (p *pages) advice(w http.ResponseWriter, r *http.Request) {
	o, err := readObjective(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	entry := p.adviceNow(p.cfg.Router.Snapshot())
	if o != (router.Objective{}) {
		reach := entry.Within(o)
		entry.Objective = &reach
	}
	writeIndented(w, entry)
}

// readObjective reads ttft=500ms&tpot=20ms. A number without a unit is in ms, as that of xpyd bench advise.
func readObjective(q url.Values) (o router.Objective, err error) {
	for name, values := range q {
		into := map[string]*float64{"ttft": &o.TTFT, "tpot": &o.TPOT}[name]
		if into == nil {
			return o, fmt.Errorf("there is no parameter %q: want ttft or tpot, as in /advice?ttft=500ms&tpot=20ms", name)
		}
		d, err := time.ParseDuration(values[0])
		if ms, bad := strconv.ParseFloat(values[0], 64); bad == nil {
			d, err = time.Duration(ms*float64(time.Millisecond)), nil
		}
		if err != nil || d <= 0 || d > time.Hour {
			return o, fmt.Errorf("%s=%q: want a time up to an hour, such as 500ms", name, values[0])
		}
		*into = d.Seconds()
	}
	return o, nil
}
