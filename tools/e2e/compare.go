package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// compare goes through both values. A member that is null equals one that is missing, because a
// stream leaves out events that would have added nothing.
func (c *comparison) compare(at string, want, got any) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			c.differ(at, want, got)
			return
		}
		names := maps.Clone(w)
		maps.Copy(names, g)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			c.compare(at+"."+name, w[name], g[name])
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			c.differ(at, want, got)
			return
		}
		w, g = byIndex(w), byIndex(g)
		for i := range w {
			c.compare(fmt.Sprintf("%s[%d]", at, i), w[i], g[i])
		}
	case json.Number:
		g, ok := got.(json.Number)
		if !ok || !c.near(at, w, g) {
			c.differ(at, want, got)
		}
	default:
		if want != got {
			c.differ(at, want, got)
		}
	}
}

// byIndex sorts choices by their index, because a stream may begin them in any order.
func byIndex(list []any) []any {
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b any) int {
		x, ok := indexOf(a)
		y, ok2 := indexOf(b)
		if !ok || !ok2 {
			return 0
		}
		m, _ := x.Int64()
		n, _ := y.Int64()
		return int(m - n)
	})
	return sorted
}

func (c *comparison) near(at string, want, got json.Number) bool {
	if want == got {
		return true
	}
	if !strings.Contains(at, "logprob") {
		return false
	}
	w, err1 := want.Float64()
	g, err2 := got.Float64()
	if err1 != nil || err2 != nil {
		return false
	}
	d := math.Abs(w - g)
	c.worst = max(c.worst, d)
	return d <= c.tolerance
}
