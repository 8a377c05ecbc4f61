package process

import (
	"testing"
)

func TestCountGoroutinesLeavesIdleWorkersOut(t *testing.T) {
	const profile = "goroutine profile: total 12\n7 @ 0x1 0x2\n#\t0x1\tgithub.com/valyala/fasthttp.(*workerPool).workerFunc+0x1\tworkerpool.go:1\n\n" +
		"3 @ 0x3\n#\t0x3\tinternal/poll.runtime_pollWait+0x1\tnetpoll.go:1\n#\t0x4\tgithub.com/valyala/fasthttp.(*workerPool).workerFunc+0x1\tworkerpool.go:1\n\n2 @ 0x5\n#\t0x5\tmain.main+0x1\tmain.go:1\n"
	if n, err := countGoroutines(profile); n != 5 || err != nil {
		t.Errorf("%d goroutines, error %v, want 5", n, err)
	}
}
