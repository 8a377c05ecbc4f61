package router

import (
	"fmt"
	"strconv"
	"strings"
)

// maxRank bounds a data-parallel rank, and with it what one entry of a pool may stand for.
const maxRank = 1023

// NoRank is the rank of a backend that is a whole engine. AutoRank is the rank of an engine that has not
// yet told xpyd how many ranks it has. Until then, its backend gets no requests.
const (
	NoRank   = -1
	AutoRank = -2
)

// auto is what stands in the place of AutoRank.
const auto = "auto"

// SplitRank cuts the data-parallel rank off the URL of a backend: "http://host:8000@3" is rank 3 of the
// engine http://host:8000, and "http://host:8000@auto" its AutoRank. Without a rank it returns raw and NoRank.
func SplitRank(raw string) (engine string, rank int) {
	i := strings.LastIndexByte(raw, '@')
	if i < 0 {
		return raw, NoRank
	}
	if raw[i+1:] == auto {
		return raw[:i], AutoRank
	}
	n, ok := rankOf(raw[i+1:])
	if !ok {
		return raw, NoRank
	}
	return raw[:i], n
}

// JoinRank is the URL of a rank of an engine. It undoes SplitRank.
func JoinRank(engine string, rank int) string {
	switch rank {
	case NoRank:
		return engine
	case AutoRank:
		return engine + "@" + auto
	}
	return engine + "@" + strconv.Itoa(rank)
}

// PartOf reports whether url names backend. A URL with @auto names each rank of the engine and the whole engine.
func PartOf(backend, url string) bool {
	engine, rank := SplitRank(url)
	base, _ := SplitRank(backend)
	return backend == url || rank == AutoRank && base == engine
}

// FoundRanks returns the backends of an engine that has the given number of ranks. One rank is the whole
// engine. 0 stands for an engine that has not told its number yet.
func FoundRanks(engine string, ranks int) (all []string) {
	switch ranks {
	case 0:
		return []string{JoinRank(engine, AutoRank)}
	case 1:
		return []string{engine}
	}
	for n := range ranks {
		all = append(all, JoinRank(engine, n))
	}
	return all
}

// MaxRanks is the greatest number of ranks of one engine.
const MaxRanks = maxRank + 1

// rankOf reads a rank as it is written, so that each has one name.
func rankOf(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= maxRank && strconv.Itoa(n) == text
}

// Ranks returns the backends that a URL stands for: "http://host:8000@0..7" is eight, and any other URL is
// one. Its error text follows the value, as with BaseURL.
func Ranks(raw string) ([]string, error) {
	all, err := EachRank(raw)
	for i := range all {
		if all[i], err = BaseURL(all[i]); err != nil {
			return nil, err
		}
	}
	return all, err
}

// EachRank is Ranks for a name that need not be a URL, such as "host:8000@0..7". It only spells out the
// ranks.
func EachRank(name string) ([]string, error) {
	i := strings.LastIndexByte(name, '@')
	low, high, several := strings.Cut(name[i+1:], "..")
	if i < 0 || !several {
		return []string{name}, nil
	}
	first, ok := rankOf(low)
	last, too := rankOf(high)
	if !ok || !too || first > last {
		return nil, fmt.Errorf("must have ranks from 0 to %d, the lower first; try http://127.0.0.1:8100@0..7", maxRank)
	}
	var all []string
	for n := first; n <= last; n++ {
		all = append(all, JoinRank(name[:i], n))
	}
	return all, nil
}

// MissedRanks says which of a server's ranks a pool leaves out, or "" if it has them all. named is how many
// of its ranks the pool names; 0 stands for a backend that is the whole server. The page may number its
// ranks among those of all servers, so MissedRanks uses only how many there are.
func MissedRanks(base string, ranks, named int) string {
	switch {
	case ranks < 2 || named >= ranks:
		return ""
	case named == 0:
		return fmt.Sprintf("%d data-parallel ranks, which are one backend here: the engine picks the rank, and xpyd knows their load as one; %s@%s makes each a backend", ranks, base, auto)
	}
	return fmt.Sprintf("%d data-parallel ranks, of which the pool names %d: the others get no requests", ranks, named)
}
