package router

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a weight. They also bound how long the lightest backend waits for a turn.
const (
	MinWeight = 0.01
	MaxWeight = 100
)

// Bounds of an engine's GPUs. Less than one is a part of a GPU.
const (
	MinGPUs = 0.01
	MaxGPUs = 4096
)

// Entry is a backend in a pool's list, as an operator wants it.
type Entry struct {
	Role   Role // see Config.Entries
	URL    string
	Weight float64 // its share relative to the others
	GPUs   float64 // 0: not given
	// Bootstrap is the port of the connector's bootstrap server on the engine's host; 0: the usual
	// port.
	Bootstrap int
	Connector string // how the engine hands over blocks; empty: by the usual connector
	State     AdminState
	// Events and Replay are host:port of the engine's KV events, and of where it says again what was missed. For a rank
	// they are those of the first one. Events may be AutoEvents.
	Events, Replay string
}

// AutoEvents stands for addresses that the engine tells itself.
const AutoEvents = "auto"

// ParseEntry reads an entry of a pool: "http://host:port", perhaps with "weight=2", "gpus=4", "bootstrap=8998",
// "connector=mooncake", "kv_events=tcp://host:5557" or "kv_events=auto", "kv_replay=tcp://host:5558" or "state=drain" after
// it. If an entry gives the number of GPUs but no weight, this number is the weight. ParseEntry returns the URL as written,
// even with an error. The error text follows the entry.
func ParseEntry(text string) (Entry, error) {
	words := strings.Fields(text)
	e := Entry{Weight: 1, State: Ready}
	if len(words) > 0 {
		e.URL, words = words[0], words[1:]
	}
	given := map[string]bool{}
	for _, word := range words {
		if err := e.set(word, given); err != nil {
			return e, err
		}
	}
	if !given["weight"] {
		e.Weight = e.OwnWeight()
	}
	return e, nil
}

// set takes in one option, and notes its name in given.
func (e *Entry) set(word string, given map[string]bool) error {
	key, value, _ := strings.Cut(word, "=")
	again := given[key]
	given[key] = true
	x, err := strconv.ParseFloat(value, 64)
	number := err == nil && !again
	switch key {
	case "weight":
		if e.Weight = x; !number || !(x >= MinWeight && x <= MaxWeight) {
			return fmt.Errorf("must have one weight from %v to %v; try %s weight=2", MinWeight, MaxWeight, e.URL)
		}
	case "gpus":
		if e.GPUs = x; !number || !(x >= MinGPUs && x <= MaxGPUs) {
			return fmt.Errorf("must have one number of GPUs from %v to %v; try %s gpus=4", MinGPUs, MaxGPUs, e.URL)
		}
	case "bootstrap":
		if e.Bootstrap = int(x); !number || x != math.Trunc(x) || !(x >= 1 && x <= 65535) {
			return fmt.Errorf("must have one port of a bootstrap server from 1 to 65535; try %s bootstrap=8998", e.URL)
		}
	case "connector":
		if e.Connector = value; value == "" || again {
			return fmt.Errorf("must have one name of a connector; try %s connector=nixl", e.URL)
		}
	case "state":
		if e.State = AdminState(value); again || !slices.Contains(AdminStates(), e.State) {
			return fmt.Errorf("must have one of the states ready, drain and disabled; try %s state=drain", e.URL)
		}
	case "kv_events", "kv_replay":
		return e.setEvents(key, value, again)
	default:
		return fmt.Errorf("has an unknown option %q; allowed: weight=NUMBER, gpus=NUMBER, bootstrap=PORT, connector=NAME, kv_events=ADDRESS, kv_replay=ADDRESS, state=STATE", showOption(word))
	}
	return nil
}

// setEvents takes in where the engine's KV events come from. An address is written as vLLM's, whose host * is the engine's.
func (e *Entry) setEvents(key, value string, again bool) error {
	if key == "kv_events" && value == AutoEvents && !again {
		e.Events = AutoEvents
		return nil
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(value, "tcp://"))
	if n, wrong := strconv.Atoi(port); again || err != nil || wrong != nil || n < 1 || n > 65535 || !strings.HasPrefix(value, "tcp://") {
		return fmt.Errorf("must have one address of KV events in %s; try %s %s=tcp://*:%d", key, e.URL, key, map[string]int{"kv_events": 5557, "kv_replay": 5558}[key])
	}
	if host == "*" {
		engine, _, _ := strings.Cut(e.URL, "@") // without ranks
		u, err := url.Parse(engine)
		if err != nil {
			return errors.New("is no URL")
		}
		host = u.Hostname()
	}
	if key == "kv_events" {
		e.Events = net.JoinHostPort(host, port)
	} else {
		e.Replay = net.JoinHostPort(host, port)
	}
	return nil
}

// showOption shows a word that is no option. It may be another URL with a password, or hold a key.
func showOption(word string) string {
	name, value, given := strings.Cut(word, "=")
	if _, err := strconv.ParseFloat(value, 64); !given || err == nil || strings.Contains(word, "@") {
		return ShowURL(word)
	}
	return ShowURL(name) + "=…"
}

// OwnWeight is the weight of an entry that does not give one.
func (e Entry) OwnWeight() float64 {
	if e.GPUs == 0 {
		return 1
	}
	return min(e.GPUs, MaxWeight)
}

// MustEntries is ParseEntry for texts that are known to be right. It panics if one is not.
func MustEntries(texts ...string) (all []Entry) {
	for _, text := range texts {
		e, err := ParseEntry(text)
		if err != nil {
			panic(fmt.Sprintf("BUG: %q %v", e.URL, err))
		}
		all = append(all, e)
	}
	return all
}

// Texts writes each of the entries as ParseEntry reads it.
func Texts(entries []Entry) (texts []string) {
	for _, e := range entries {
		texts = append(texts, e.String())
	}
	return texts
}

// String writes the entry as ParseEntry reads it, without what need not be said.
func (e Entry) String() string {
	text := e.URL
	if e.Weight != e.OwnWeight() {
		text += " weight=" + strconv.FormatFloat(e.Weight, 'g', -1, 64)
	}
	if e.GPUs > 0 {
		text += " gpus=" + strconv.FormatFloat(e.GPUs, 'g', -1, 64)
	}
	if e.Bootstrap > 0 {
		text += " bootstrap=" + strconv.Itoa(e.Bootstrap)
	}
	if e.Connector != "" {
		text += " connector=" + e.Connector
	}
	switch e.Events {
	case "":
	case AutoEvents:
		text += " kv_events=" + AutoEvents
	default:
		text += " kv_events=tcp://" + e.Events
	}
	if e.Replay != "" {
		text += " kv_replay=tcp://" + e.Replay
	}
	if e.State != Ready && e.State != "" {
		text += " state=" + string(e.State)
	}
	return text
}
