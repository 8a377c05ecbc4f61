package kvevents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"xpyd/router"
)

// address is where an engine says what is in its cache: host:port of the events, and of their replay, which may be empty.
type address struct{ events, replay string }

// sourcesPath is where vLLM says where its ranks publish.
const sourcesPath = "/kv_event_sources"

// find returns where the events of b are. For router.AutoEvents it asks the engine.
func (m *Manager) find(ctx context.Context, b *router.Backend, entry address) (address, error) {
	if entry.events != router.AutoEvents {
		return entry, nil
	}
	status, body, err := m.cfg.Get(ctx, b, sourcesPath)
	switch {
	case err != nil:
		return entry, fmt.Errorf("ask where the events are: %w", err)
	case status == http.StatusNotFound:
		return entry, fmt.Errorf("%s answered 404, as vLLM before 0.32 does; give kv_events=tcp://*:5557 in place of kv_events=auto", sourcesPath)
	case status != http.StatusOK:
		return entry, fmt.Errorf("%s answered %d", sourcesPath, status)
	}
	u, err := url.Parse(b.Base())
	if err != nil {
		return entry, errors.New("the engine's URL is none")
	}
	return readSources(body, b.Rank, u.Hostname())
}

// readSources reads an answer of sourcesPath: by rank, where it publishes. Ports are those of the rank.
func readSources(body []byte, rank int, host string) (at address, err error) {
	var all map[string]struct {
		Publisher string `json:"publisher"`
		Events    string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
	}
	if json.Unmarshal(body, &all) != nil {
		return at, fmt.Errorf("%s answered what is no list of publishers", sourcesPath)
	}
	of, ok := all[strconv.Itoa(max(rank, 0))]
	switch {
	case rank == router.NoRank && len(all) > 1:
		return at, fmt.Errorf("the engine has %d ranks, each with its own cache; add @auto to its URL", len(all))
	case !ok || of.Publisher != "zmq":
		return at, errors.New("the engine publishes no KV events; start it with --kv-events-config")
	}
	if at.events, err = dialable(of.Events, host); err == nil && of.Replay != "" {
		at.replay, err = dialable(of.Replay, host)
	}
	return at, err
}

// dialable is host:port of an endpoint as an engine on host has it. One for all of its interfaces is at that host.
func dialable(endpoint, host string) (string, error) {
	name, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil || !strings.HasPrefix(endpoint, "tcp://") {
		return "", errors.New("the engine's endpoint is no tcp://host:port, so only its own machine can listen")
	}
	if ip := net.ParseIP(name); name == "*" || ip != nil && ip.IsUnspecified() {
		name = host
	}
	return net.JoinHostPort(name, port), nil
}

// atRank returns the address of a rank, whose port is as many above that of the first one. vLLM has it so.
func atRank(addr string, rank int) string {
	host, port, err := net.SplitHostPort(addr)
	n, wrong := strconv.Atoi(port)
	if err != nil || wrong != nil || rank <= 0 {
		return addr
	}
	return net.JoinHostPort(host, strconv.Itoa(n+rank))
}
