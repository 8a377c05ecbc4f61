package admin

import (
	"strings"
	"time"

	"xpyd/admin/desk"
	"xpyd/admin/members"
	"xpyd/router"
)

// whyEntry says since when a backend is as it is, and why. Moments are Unix seconds.
type whyEntry struct {
	// Since is when the backend came into what keeps requests from it: an operator's state, then down, then ejected. It is
	// when it came up if nothing does. Reason says in words why, and By who has set that state.
	Since  float64 `json:"since,omitempty"`
	Reason string  `json:"reason,omitempty"`
	By     string  `json:"by,omitempty"`
	// LastError is that of its last check or leg that failed, in words.
	LastError   string  `json:"last_error,omitempty"`
	LastErrorAt float64 `json:"last_error_at,omitempty"`
}

// aside is what is known of backends beside the router.
type aside struct {
	edits  []members.Edit
	recent map[desk.Engine]desk.Recent
}

func (p *pages) aside() aside {
	a := aside{recent: p.cfg.Desk.Recent()}
	if p.cfg.Control.Members != nil {
		a.edits, _ = p.cfg.Control.Members.Edits()
	}
	return a
}

// whyOf says why m is as it is. ejected is why it is ejected; empty: it is not.
func (p *pages) whyOf(edits []members.Edit, m router.Member, ejected router.EjectReason) whyEntry {
	s, wedged, slow := p.cfg.Journal.Standing(m.Backend), m.Trouble.Wedged(), m.Trouble.Slow()
	w := whyEntry{Since: unix(s.Since), LastError: s.Error}
	if s.Error != "" {
		w.LastErrorAt = unix(s.ErrorAt)
	}
	switch {
	case m.Entry.State != router.Ready:
		w.Since, w.Reason = unix(p.cfg.Desk.Started), "the configuration says "+string(m.Entry.State)
		for _, e := range edits {
			if e.State == m.Entry.State && router.PartOf(m.URL, e.URL) {
				w.Reason = strings.TrimSpace("an operator has set it to " + string(e.State))
				w.By = e.By
				if e.At > 0 {
					w.Since = float64(e.At)
				}
			}
		}
	case wedged != nil:
		w.Since, w.Reason = unix(wedged.Since), wedged.Words()
	case m.State() == router.Down:
		w.Reason = s.Error
	case ejected != "":
		w.Since, w.Reason = unix(s.Ejected), ejected.Words()
		if s.Error != "" {
			w.Reason += "; its last error: " + s.Error
		}
	case slow != nil:
		w.Since, w.Reason = unix(slow.Since), "slow: "+slow.Words()
	case m.State() == router.Unknown:
		w.Reason = "no check has ended so far"
		if s.Error != "" {
			w.Reason = s.Error
		}
	}
	return w
}

// since is a moment as the notices say it: the time of today, or the date too.
func since(at float64) string {
	if at == 0 {
		return ""
	}
	t := time.UnixMilli(int64(at * 1e3)).UTC()
	if time.Since(t) < 20*time.Hour {
		return " since " + t.Format("15:04:05") + " UTC"
	}
	return " since " + t.Format("2006-01-02 15:04") + " UTC"
}
