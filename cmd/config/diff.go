package config

import (
	"fmt"
	"slices"

	"xpyd/router"
)

// maxListed bounds what one log line names, because a whole rack may come with one reload.
const maxListed = 64

// poolChange says what a reload did to one pool.
type poolChange struct {
	added, removed []string // URLs
	reweighted     []string // URL and both weights
	resized        []string // URL and both numbers of GPUs
	moved          []string // URL and both bootstrap ports
	reconnected    []string // URL and both connectors; for the router the backend has left and another one joined
	announced      []string // URL and both addresses of KV events
	restated       []string // URL and both states
}

// comparePools finds the differences between two lists of a pool's entries.
func comparePools(was, now []router.Entry) (c poolChange) {
	before, after := byURL(was), byURL(now)
	for _, e := range now {
		old, stays := before[e.URL]
		switch {
		case !stays:
			c.added = append(c.added, e.URL)
		case old.Weight != e.Weight:
			c.reweighted = append(c.reweighted, fmt.Sprintf("%s %v -> %v", e.URL, old.Weight, e.Weight))
		}
		if stays && old.GPUs != e.GPUs {
			c.resized = append(c.resized, fmt.Sprintf("%s %v -> %v", e.URL, old.GPUs, e.GPUs))
		}
		if stays && old.State != e.State {
			c.restated = append(c.restated, fmt.Sprintf("%s %v -> %v", e.URL, old.State, e.State))
		}
		if stays && old.Bootstrap != e.Bootstrap {
			c.moved = append(c.moved, fmt.Sprintf("%s %v -> %v", e.URL, old.Bootstrap, e.Bootstrap))
		}
		if stays && (old.Events != e.Events || old.Replay != e.Replay) {
			c.announced = append(c.announced, fmt.Sprintf("%s %s -> %s", e.URL, eventsOf(old), eventsOf(e)))
		}
		if stays && old.Connector != e.Connector {
			c.reconnected = append(c.reconnected, fmt.Sprintf("%s %s -> %s", e.URL, orNone(old.Connector), orNone(e.Connector)))
		}
	}
	for _, e := range was {
		if _, stays := after[e.URL]; !stays {
			c.removed = append(c.removed, e.URL)
		}
	}
	return c
}

func byURL(entries []router.Entry) map[string]router.Entry {
	by := map[string]router.Entry{}
	for _, e := range entries {
		by[e.URL] = e
	}
	return by
}

// eventsOf are the addresses of an engine's KV events and of their replay.
func eventsOf(e router.Entry) string {
	if e.Replay == "" {
		return orNone(e.Events)
	}
	return e.Events + " (kv_replay " + e.Replay + ")"
}

// Changes says for a log line what differs between two configurations, with an entry for each
// backend and key. It shows no value of a secret.
func Changes(was, now Config) (joined, left int, list []string) {
	for _, pool := range []struct {
		role     string
		was, now []router.Entry
	}{{"prefill", was.Router.Prefill, now.Router.Prefill}, {"decode", was.Router.Decode, now.Router.Decode}, {"engines", was.Router.Engines, now.Router.Engines}, {"encode", was.Router.Encode, now.Router.Encode}} {
		c := comparePools(pool.was, pool.now)
		joined, left = joined+len(c.added)+len(c.reconnected), left+len(c.removed)+len(c.reconnected)
		for _, kind := range []struct {
			what string
			of   []string
		}{{"added", c.added}, {"removed", c.removed}, {"weight of", c.reweighted}, {"GPUs of", c.resized}, {"bootstrap port of", c.moved}, {"connector of", c.reconnected}, {"KV events of", c.announced}, {"state of", c.restated}} {
			for _, s := range kind.of {
				list = append(list, pool.role+": "+kind.what+" "+s)
			}
		}
	}
	// If decode_policy is empty, other keys choose it.
	if old, policy := was.Router.ChosenDecodePolicy(), now.Router.ChosenDecodePolicy(); old != policy {
		list = append(list, "decode_policy: "+old+" -> "+policy)
	}
	changed := ChangedKeys(was, now)
	for _, k := range configKeys() {
		switch {
		case slices.Contains([]string{"prefill", "decode", "engines", "encode", "decode_policy"}, k.path) || !slices.Contains(changed, k.path):
		case k.secret():
			list = append(list, k.path)
		default:
			list = append(list, fmt.Sprintf("%s: %s -> %s", k.path, orNone(k.text(was)), orNone(k.text(now))))
		}
	}
	if was.AdminTokenFile == now.AdminTokenFile && !slices.Equal(was.AdminTokens, now.AdminTokens) {
		list = append(list, "admin_token_file: its tokens")
	}
	if len(list) == 0 {
		list = []string{"nothing changed"}
	}
	if more := len(list) - maxListed; more > 0 {
		list = append(list[:maxListed], fmt.Sprintf("%d more", more))
	}
	return joined, left, list
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
