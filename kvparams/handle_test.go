package kvparams

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"testing"

	"xpyd/internal/racetest"
)

// A list of block ids is read by words of eight bytes. Whatever it holds, and wherever the words begin,
// what is counted is what a plain reading counts.
func TestPlainIDsAreCountedExactly(t *testing.T) {
	racetest.SkipPure(t)
	list := regexp.MustCompile(`^\[(0|[1-9]\d{0,17})(,(0|[1-9]\d{0,17}))*\]`)
	check := func(text []byte, at int) {
		want, end := 0, 0
		if m := list.Find(text[at:]); m != nil {
			want, end = 1+bytes.Count(m, []byte{','}), at+len(m)
		}
		if n, to := plainIDs(text, at); n != want || to != end {
			t.Fatalf("%q from %d: %d ids to %d, want %d to %d", text, at, n, to, want, end)
		}
	}
	odd := []byte("0,]-. e\x00\x2c\xac\xb0\xff\n\"[")
	for range 100_000 {
		text := append(bytes.Repeat([]byte{' '}, rand.IntN(9)), '[')
		at := len(text) - 1
		for range 1 + rand.IntN(12) {
			text = append(text, byte('1'+rand.IntN(9)))
			for range rand.IntN(1 << rand.IntN(6)) {
				text = append(text, byte('0'+rand.IntN(10)))
			}
			text = append(text, ',')
		}
		text[len(text)-1] = ']'
		check(text, at)
		place := at + 1 + rand.IntN(len(text)-at-1)
		text[place] = odd[rand.IntN(len(odd))]
		check(text, at)
		check(text[:place], at)
	}
}
