package proxy

import (
	"testing"
	"time"

	"xpyd/engines"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// Only a backend of a leg that says it is busy is left alone for as long as it asks.
func TestRefusalAsksToWait(t *testing.T) {
	s := &Server{engines: &engines.Set{}}
	pools := router.DefaultConfig()
	pools.Decode = router.MustEntries("http://127.0.0.1:1")
	rt, err := router.New(pools, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	b := rt.Snapshot().Backends(router.Decode)[0]
	for _, l := range []fault.Leg{fault.Prefill, fault.Decode, fault.Passed} {
		for _, status := range []int{204, 302, 400, 401, 429, 500, 503, 504} {
			x := &upstream.Exchange{Head: upstream.Head{RetryAfter: []byte("7")}}
			told, asked := s.tellRefusal(s.refused(l, status), "id", b, x, nil)
			busy := l != fault.Passed && (status == 429 || status == 503)
			if (asked == 7*time.Second) != busy || !busy && asked != 0 {
				t.Errorf("leg %d, status %d: asked to be left alone for %v", l, status, asked)
			}
			if status >= 400 && (told.Status != status || told.RetryAfter != 7) {
				t.Errorf("leg %d, status %d is told as %d, after %d s", l, status, told.Status, told.RetryAfter)
			}
		}
	}
}
