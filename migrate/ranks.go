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

// ranked puts the ranks behind the URL of each entry of a pool.
func ranked(pool []string, ranks string) []string {
	var all []string
	for _, entry := range pool {
		url, rest, more := strings.Cut(entry, " ")
		if entry = strings.TrimSuffix(url, "/") + ranks; more {
			entry += " " + rest
		}
		all = append(all, entry)
	}
	return all
}
