package migrate

import (
	"fmt"
	"strconv"
	"strings"
)

// ranks returns what follows the URL of an engine with as many data-parallel ranks as the flag says, or ""
// where there is one.
func (g given) ranks(flag string) (string, error) {
	n, err := strconv.Atoi(g.word(flag, "1"))
	switch {
	case err != nil || n < 1:
		return "", fmt.Errorf("--%s: %q must be a whole number above 0", flag, g.word(flag, ""))
	case n == 1:
		return "", nil
	}
	return "@0.." + strconv.Itoa(n-1), nil
}

// ranks returns what follows the URLs of engines with data-parallel ranks, and the flag that says it. Both are empty
// where there are none. A plain balancer asks every engine as one of vLLM, so those of SGLang do not tell it how many they have.
func (w gateway) ranks(g given, p *plan) (flag, ranks string, err error) {
	const told, asked = "intra-node-data-parallel-size", "dp-aware"
	if ranks, err = g.ranks(told); err != nil || ranks != "" {
		return told, ranks, err
	}
	if !g.has(asked) {
		return "", "", nil
	}
	if _, engine := w.engines(g); engine != "vllm" && !g.has(w.pd) {
		p.note(asked, whyRanks)
		return "", "", nil
	}
	return asked, "@auto", nil
}

// ranked puts the ranks after the URL of each entry of a pool that names none.
func ranked(pool []string, ranks string) []string {
	var all []string
	for _, entry := range pool {
		url, rest, more := strings.Cut(entry, " ")
		if strings.Contains(url, "@") {
			all = append(all, entry)
			continue
		}
		if entry = strings.TrimSuffix(url, "/") + ranks; more {
			entry += " " + rest
		}
		all = append(all, entry)
	}
	return all
}
