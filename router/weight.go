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
	default:
		return fmt.Errorf("has an unknown option %q; allowed: weight=NUMBER, gpus=NUMBER, bootstrap=PORT, connector=NAME, state=STATE", showOption(word))
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
	if e.State != Ready && e.State != "" {
		text += " state=" + string(e.State)
	}
	return text
}
