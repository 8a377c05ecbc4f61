package proxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"xpyd/router"
)

// A prefill engine hangs up on each second request of a connection, which it may have begun
// with. The request is sent once more, and what the first may have left behind is counted.
func TestRepeatedPrefillIsCounted(t *testing.T) {
	type served struct{}
	var asked atomic.Int32
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		asked.Add(1)
		if q.Context().Value(served{}).(*atomic.Int32).Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":`+stubHandle+`}`)
	})
	s := httptest.NewUnstartedServer(p.server.Config.Handler)
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, served{}, &atomic.Int32{})
	}
	s.Start()
	t.Cleanup(s.Close)
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer)
	})
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		d.asDecode(c)
		c.Prefill = router.MustEntries(s.URL)
	}})
	for i, want := range []float64{0, 1} {
		if a := r.call(forms(prompt, 3)[0]); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if n := r.metric(`xpyd_kv_orphans_total{reason="repeated"}`); n != want {
			t.Errorf("%v counted after request %d, want %v", n, i+1, want)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	if n := r.metric(`xpyd_kv_orphans_total`); n != 1 {
		t.Errorf("%v orphans in all, want 1", n)
	}
}
