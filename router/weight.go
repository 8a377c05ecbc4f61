package router

import (
	"fmt"
	"math"
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

// Entry is a backend in a pool's list.
type Entry struct {
	URL    string
	Weight float64 // its share relative to the others
	GPUs   float64 // 0: not given
	// Bootstrap is the port of the connector's bootstrap server on the engine's host; 0: the usual
	// port.
	Bootstrap int
	Connector string // how the engine hands over blocks; empty: by the usual connector
	State     AdminState
}

// ParseEntry reads an entry of a pool: "http://host:port", perhaps with "weight=2", "gpus=4", "bootstrap=8998",
// "connector=mooncake" or "state=drain" after it. If an entry gives the number of GPUs but no weight, this number is
// the weight. ParseEntry returns the URL as written, even with an error. The error text follows the entry.
func ParseEntry(text string) (Entry, error) {
	words := strings.Fields(text)
	e := Entry{Weight: 1, State: Ready}
	if len(words) > 0 {
		e.URL, words = words[0], words[1:]
	}
	weighed := false
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		x, err := strconv.ParseFloat(value, 64)
		switch {
		case key == "weight":
			if err != nil || weighed || !(x >= MinWeight && x <= MaxWeight) {
				return e, fmt.Errorf("must have one weight from %v to %v; try %s weight=2", MinWeight, MaxWeight, e.URL)
			}
			e.Weight, weighed = x, true
		case key == "gpus":
			if err != nil || e.GPUs > 0 || !(x >= MinGPUs && x <= MaxGPUs) {
				return e, fmt.Errorf("must have one number of GPUs from %v to %v; try %s gpus=4", MinGPUs, MaxGPUs, e.URL)
			}
			e.GPUs = x
		case key == "bootstrap":
			if err != nil || e.Bootstrap > 0 || x != math.Trunc(x) || !(x >= 1 && x <= 65535) {
				return e, fmt.Errorf("must have one port of a bootstrap server from 1 to 65535; try %s bootstrap=8998", e.URL)
			}
			e.Bootstrap = int(x)
		case key == "connector":
			if value == "" || e.Connector != "" {
				return e, fmt.Errorf("must have one name of a connector; try %s connector=nixl", e.URL)
			}
			e.Connector = value
		case key == "state":
			if e.State = AdminState(value); !slices.Contains(AdminStates(), e.State) {
				return e, fmt.Errorf("must have one of the states ready, drain and disabled; try %s state=drain", e.URL)
			}
		default:
			return e, fmt.Errorf("has something else than weight=NUMBER, gpus=NUMBER, bootstrap=PORT, connector=NAME or state=STATE after its URL; try %s weight=2", e.URL)
		}
	}
	if !weighed {
		e.Weight = e.OwnWeight()
	}
	return e, nil
}

// OwnWeight is the weight of an entry that does not give one.
func (e Entry) OwnWeight() float64 {
	if e.GPUs == 0 {
		return 1
	}
	return min(e.GPUs, MaxWeight)
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
	if e.State != Ready && e.State != "" {
		text += " state=" + string(e.State)
	}
	return text
}
