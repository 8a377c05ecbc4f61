package admin

import "xpyd/router"

// wedgedEntry says of an engine that it gives nothing. Times are Unix seconds, durations seconds.
type wedgedEntry struct {
	Since float64 `json:"since"` // its last sign of work
	Named float64 `json:"named"` // when xpyd found it out
	Owed  int     `json:"owed"`  // answers that it owed then
	Limit float64 `json:"limit"` // how long it may give nothing
	Down  bool    `json:"down"`  // it is down for this, and its streams have ended
}

// slowEntry says of an engine that it is slower than its peers. Its times are those of one token.
type slowEntry struct {
	Since        float64 `json:"since"` // Unix seconds
	Work         string  `json:"work"`  // prefill, decode, transfer
	Ratio        float64 `json:"ratio"` // its speed as a part of its peers'
	TokenSeconds float64 `json:"token_seconds"`
	PeersSeconds float64 `json:"peers_token_seconds"`
}

func troubleOf(t *router.Trouble) (wedged *wedgedEntry, slow *slowEntry) {
	if w := t.Wedged(); w != nil {
		wedged = &wedgedEntry{unix(w.Since), unix(w.Named), w.Owed, w.Limit.Seconds(), w.Down}
	}
	if s := t.Slow(); s != nil {
		slow = &slowEntry{unix(s.Since), s.Work, s.Ratio, s.Own.Seconds(), s.Peers.Seconds()}
	}
	return wedged, slow
}
