package config

import (
	"slices"
	"strings"
)

// nearest returns the candidate that name is most likely meant for: the one with the fewest
// edits, no more than a third of name, else one that it is a part or an extension of, by
// whole words. "": none is near.
func nearest(name string, candidates []string) string {
	slices.Sort(candidates)
	name = strings.ToLower(name)
	edits := max(1, len(name)/3)
	best, least := "", edits+3
	for _, c := range candidates {
		low := strings.ToLower(c)
		d := distance(name, low)
		switch {
		case d <= edits:
		case within(name, low):
			d = edits + 1
		case within(low, name):
			d = edits + 2
		default:
			continue
		}
		if d < least {
			best, least = c, d
		}
	}
	return best
}

// within: part is the begin or the end of whole, with a mark between words beside it.
func within(part, whole string) bool {
	const marks = ".-_"
	rest, begins := strings.CutPrefix(whole, part)
	if begins && rest != "" && strings.ContainsRune(marks, rune(rest[0])) {
		return true
	}
	rest, ends := strings.CutSuffix(whole, part)
	return ends && rest != "" && strings.ContainsRune(marks, rune(rest[len(rest)-1]))
}

// distance counts the bytes to insert, delete or replace between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// hint says what an unknown name was meant for, if that can be told.
func hint(prefix, near string) string {
	if near == "" {
		return "xpyd serve --help lists all"
	}
	return "the nearest is " + prefix + near
}
