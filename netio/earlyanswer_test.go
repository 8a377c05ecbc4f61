package netio

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// What is a little more than a write takes goes out in one, and of more the first sendLimit bytes do.
func TestTailOfARequestNeedsNoWriteOfItsOwn(t *testing.T) {
	for size, want := range map[int][]int{
		1:                             {1},
		sendLimit:                     {sendLimit},
		sendLimit + 1:                 {sendLimit + 1},
		sendLimit + sendLimit/4:       {sendLimit + sendLimit/4},
		sendLimit + sendLimit/4 + 1:   {sendLimit, sendLimit/4 + 1},
		2*sendLimit + 600:             {sendLimit, sendLimit + 600},
		2*sendLimit + sendLimit/4 + 1: {sendLimit, sendLimit, sendLimit/4 + 1},
	} {
		body := bytes.Repeat([]byte{'x'}, size)
		head := min(600, size)
		rest := net.Buffers{body[:head], nil, body[head:]}
		for _, n := range want {
			var vec [maxSegments]unix.Iovec
			got := 0
			for _, v := range vec[:load(&vec, rest)] {
				got += int(v.Len)
			}
			if got != n {
				t.Errorf("%d bytes: a write of %d, want %d of %v", size, got, n, want)
			}
			drop(&rest, n)
		}
		if len(rest) != 0 {
			t.Errorf("%d bytes: %d pieces are left", size, len(rest))
		}
	}
}
