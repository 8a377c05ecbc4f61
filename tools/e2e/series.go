package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// sumSeries adds up the series of a metric in Prometheus' text format that carry all
// labels. A metric of which there is no series at all is an error: its name may have changed.
func sumSeries(text []byte, name string, labels ...string) (float64, error) {
	sum, found := 0.0, false
	for line := range bytes.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(string(line)), name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		found = true
		set, value := "", rest
		if i := strings.LastIndexByte(rest, '}'); i >= 0 {
			set, value = rest[:i], rest[i+1:]
		}
		if !carries(set, labels) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum += v
	}
	if !found {
		return 0, fmt.Errorf("read metric %s: no such metric", name)
	}
	return sum, nil
}

func carries(set string, labels []string) bool {
	for _, l := range labels {
		if !strings.Contains(set, "{"+l) && !strings.Contains(set, ","+l) {
			return false
		}
	}
	return true
}
