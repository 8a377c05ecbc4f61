package prefix

import "math/bits"

// A prompt is not remembered by each of its blocks but by marks: one after each of its first 128
// blocks, then one after every second block up to 256, after every fourth up to 512, and so on. A
// match is found to within a 64th of its length, and a million tokens take 500 lines of the table
// instead of 16,000.
const (
	denseMarks  = 128
	octaveMarks = 64
)

// markCount is how many marks a prompt of n blocks has.
func markCount(blocks int) int {
	if blocks <= denseMarks {
		return blocks
	}
	octave := bits.Len(uint(blocks)) - 8
	return denseMarks + octaveMarks*octave + (blocks-denseMarks<<octave)>>(octave+1)
}

// After is how many blocks stand before the first mark that comes after that many blocks.
func After(blocks int) int { return markEnd(markCount(blocks)) }

// markEnd is how many blocks stand before the n-th mark, counted from 0.
func markEnd(n int) int {
	if n < denseMarks {
		return n + 1
	}
	octave, nth := (n-denseMarks)/octaveMarks, (n-denseMarks)%octaveMarks
	return denseMarks<<octave + (nth+1)<<(octave+1)
}
