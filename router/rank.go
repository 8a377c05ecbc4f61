package router

import (
	"fmt"
	"strconv"
	"strings"
)

// maxRank bounds a data-parallel rank, and with it what one entry of a pool may stand for.
const maxRank = 1023

// NoRank is the rank of a backend that is a whole engine.
const NoRank = -1

// SplitRank cuts the data-parallel rank off the URL of a backend: "http://host:8000@3" is rank 3 of the
// engine http://host:8000. Without a rank it returns raw and NoRank.
func SplitRank(raw string) (engine string, rank int) {
	i := strings.LastIndexByte(raw, '@')
	if i < 0 {
		return raw, NoRank
	}
	n, ok := rankOf(raw[i+1:])
	if !ok {
		return raw, NoRank
	}
	return raw[:i], n
}

// rankOf reads a rank as it is written, so that each has one name.
func rankOf(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= maxRank && strconv.Itoa(n) == text
}

// Ranks returns the backends that a URL stands for: "http://host:8000@0..7" is eight, and any other URL is
// one. The text of its errors goes after the value, as that of BaseURL does.
func Ranks(raw string) ([]string, error) {
	all, err := EachRank(raw)
	for i := range all {
		if all[i], err = BaseURL(all[i]); err != nil {
			return nil, err
		}
	}
	return all, err
}

// EachRank is Ranks for a name that need be no URL, as "host:8000@0..7". It only spells the ranks out.
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
		all = append(all, name[:i+1]+strconv.Itoa(n))
	}
	return all, nil
}
