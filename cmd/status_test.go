package cmd

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// printed is the output of a command that ends once it has a text some times.
type printed struct {
	bytes.Buffer
	until string
	times int
	end   context.CancelFunc
}

func (p *printed) Write(text []byte) (int, error) {
	n, err := p.Buffer.Write(text)
	if strings.Count(p.String(), p.until) >= p.times {
		p.end()
	}
	return n, err
}

// A process that does not answer does not end the watch over another one.
func TestWatchOutlivesOneProcess(t *testing.T) {
	t.Parallel()
	p := startAdmin(t)
	watch := func(out *printed, args ...string) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out.end = cancel
		root := newRootCmd()
		root.SetOut(out)
		root.SetArgs(append([]string{"status", "--watch", "--every", "10ms", "--admin", "http://127.0.0.1:7"}, args...))
		return root.ExecuteContext(ctx)
	}
	for _, args := range [][]string{{}, {"--json"}} {
		out := &printed{until: "http://127.0.0.1:8", times: 9}
		if err := watch(out, append(args, "--admin", "http://"+p.admin)...); err != nil || strings.Count(out.String(), out.until) < out.times {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	if err := watch(&printed{until: "never", times: 1}, "--admin", "http://127.0.0.1:9"); err == nil {
		t.Error("none answers, and the watch goes on")
	}
}
