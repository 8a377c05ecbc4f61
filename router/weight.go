package router

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a weight. They also bound how long the lightest backend waits for a turn.
const (
	minWeight = 0.01
	maxWeight = 100
)

// ParseEntry reads an entry of a pool, "http://host:port" or "http://host:port weight=2". It
// returns the URL as written, and the weight, 1 where none is given. The text of an error goes
// after the entry.
func ParseEntry(entry string) (url string, weight float64, err error) {
	url, rest, _ := strings.Cut(strings.TrimSpace(entry), " ")
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return url, 1, nil
	}
	text, ok := strings.CutPrefix(rest, "weight=")
	if !ok {
		return url, 0, fmt.Errorf("has something else than weight=NUMBER behind its URL; try %s weight=2", url)
	}
	weight, err = strconv.ParseFloat(text, 64)
	if err != nil || !(weight >= minWeight && weight <= maxWeight) {
		return url, 0, fmt.Errorf("must have a weight from %v to %v; try %s weight=2", minWeight, maxWeight, url)
	}
	return url, weight, nil
}

// FormatEntry writes an entry as ParseEntry reads it. It leaves out a weight of 1.
func FormatEntry(url string, weight float64) string {
	if weight == 1 {
		return url
	}
	return url + " weight=" + strconv.FormatFloat(weight, 'g', -1, 64)
}
