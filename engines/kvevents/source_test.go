package kvevents

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/router"
	"xpyd/router/prefix"
)

// After a panic prompts are heard again, without the one that has caused it.
func TestHearsAfterAPanic(t *testing.T) {
	t.Parallel()
	var panics atomic.Int64
	s := &source{
		find: func(context.Context) (address, error) { return address{}, errors.New("nowhere") },
		log:  zerolog.Nop(), done: make(chan struct{}), heard: make(chan prefix.Heard, heardRoom),
	}
	s.index = newIndex(caches{router.News{}}, &names{}, &s.most) // there is nobody to tell what is learned
	s.index.size, s.index.ends[0] = 1, end{hash: 1, at: time.Now().Add(time.Hour)}
	ctx, cancel := context.WithCancel(t.Context())
	go s.run(ctx, func(f func()) bool {
		defer func() {
			if recover() != nil {
				panics.Add(1)
			}
		}()
		f()
		return true
	})
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never %s", what)
			}
		}
	}
	s.heard <- prefix.Heard{}
	until("a panic", func() bool { return panics.Load() > 0 })
	s.heard <- prefix.Heard{}
	until("heard again", func() bool { return len(s.heard) == 0 })
	s.locked(func() {
		if n := len(s.index.heard); n > 1 {
			t.Errorf("%d prompts wait", n)
		}
	})
	cancel()
	<-s.done
}
