package proxy

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"xpyd/netio"
	"xpyd/router"
)

// A leg that has not begun in a round has not been sent, whatever an earlier round or request did with the
// same exchange. Otherwise blocks would be left to a decode engine that never had the request.
func TestRoundBeginsWithNothingSent(t *testing.T) {
	pools := router.DefaultConfig()
	pools.Decode = router.MustEntries("http://127.0.0.1:1")
	rt, err := router.New(pools, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(DefaultConfig(), rt, nil, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	for b := rt.Snapshot().Backends(router.Decode)[0]; b.State() != router.Down; {
		b.Observe(false)
	}
	c, _ := s.newCompletion().(*completion)
	c.ctx, c.conn, c.snap, c.asking = &fasthttp.RequestCtx{}, new(netio.Conn), rt.Snapshot(), new(asking)
	c.times.end = time.Now().Add(time.Minute)
	c.p.X.Wrote, c.d.X.Wrote = time.Now(), time.Now()
	if f := c.tryRound(); f == nil {
		t.Fatal("a round without a decode engine succeeds")
	}
	if c.p.X.Sent() || c.d.X.Sent() {
		t.Errorf("sent: prefill %v, decode %v", c.p.X.Sent(), c.d.X.Sent())
	}
}
