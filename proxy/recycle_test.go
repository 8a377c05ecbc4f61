package proxy

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/router"
)

// A completion that still holds a lease is not used again. The next request would release it, or get the engine of
// the one before.
func TestHeldLeaseIsNotPooled(t *testing.T) {
	rc := router.DefaultConfig()
	rc.Decode = router.MustEntries("http://127.0.0.1:1")
	rt, err := router.New(rc, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(DefaultConfig(), rt, nil, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	for name, lease := range map[string]func(*completion) *router.Lease{
		"prefill": func(c *completion) *router.Lease { return &c.p.Lease },
		"decode":  func(c *completion) *router.Lease { return &c.d.Lease },
	} {
		c := s.newCompletion().(*completion)
		if err := rt.Snapshot().Acquire(router.Decode, 1, nil, lease(c)); err != nil {
			t.Fatal(err)
		}
		c.recycle()
		if s.idle.completions.Get() == c {
			t.Errorf("%s: pooled", name)
		}
	}
}
