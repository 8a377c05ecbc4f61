// Package nearest finds the name that a misspelt one was probably meant for.
package nearest

import (
	"slices"
	"strings"
)

// Name returns the candidate that name is most likely meant for. It prefers the one with the
// fewest edits, as long as they are no more than a third of name. Otherwise it takes one that is a
// part or an extension of name, by whole words. It returns "" if none is near.
func Name(name string, candidates []string) string {
	slices.Sort(candidates)
	name = strings.ToLower(name)
	edits := max(1, len(name)/3)
	best, least := "", edits+3
	for _, c := range candidates {
		low := strings.ToLower(c)
		d := Distance(name, low)
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

// within reports whether whole begins or ends with part, and a mark between words separates part from
// the rest.
func within(part, whole string) bool {
	const marks = ".-_"
	rest, begins := strings.CutPrefix(whole, part)
	if begins && rest != "" && strings.ContainsRune(marks, rune(rest[0])) {
		return true
	}
	rest, ends := strings.CutSuffix(whole, part)
	return ends && rest != "" && strings.ContainsRune(marks, rune(rest[len(rest)-1]))
}

// Distance counts the bytes to insert, delete or replace between a and b.
func Distance(a, b string) int {
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
