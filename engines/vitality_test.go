package engines

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/router"
)

// Silence says nothing about an engine. One that was gone still is, and one that lived may live.
func TestSilenceDoesNotBringAnEngineBack(t *testing.T) {
	const hangs = 0
	var answer atomic.Int64
	over := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		status := int(answer.Load())
		if status == hangs {
			select {
			case <-q.Context().Done():
			case <-over:
			}
			return
		}
		w.WriteHeader(status)
	}))
	defer srv.Close()
	defer close(over)
	rc := router.DefaultConfig()
	rc.Decode = router.MustEntries(srv.URL)
	rt, err := router.New(rc, 0.25, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	b := rt.Snapshot().Backends(router.Decode)[0]
	nixl, _ := kvparams.Lookup("nixl")
	s := New(Config{Router: rt, Dialects: kvparams.Reuse{}.Dialects(nixl), Dial: time.Minute, MaxIdle: time.Second})
	defer s.StopChecks()
	client := upstream.New(upstream.Config{Addr: b.Addr, Host: b.Host, DialTimeout: time.Minute, MaxIdle: time.Second, Scratch: s.scratch})
	defer client.Close()
	s.edit(func(m map[*router.Backend]*engine) { m[b] = &engine{Client: client} })

	var known time.Time
	for _, step := range []struct {
		answer int64
		gone   bool
	}{
		{200, false}, {hangs, false}, {500, true}, {hangs, true}, {500, true}, {200, false}, {hangs, false},
	} {
		answer.Store(step.answer)
		s.SetVitalsWait(time.Minute)
		if step.answer == hangs {
			s.SetVitalsWait(20 * time.Millisecond)
		}
		since, gone := s.Gone(b)
		if gone != step.gone {
			t.Fatalf("after %d: gone %v, want %v", step.answer, gone, step.gone)
		}
		if gone && !known.IsZero() && !since.Equal(known) {
			t.Errorf("after %d: gone since %v, was known at %v", step.answer, since, known)
		}
		known = since
	}
}

// An engine of SGLang generates a token for /health, which takes longer than its client should wait. It
// is asked by a path that it answers at once.
func TestSGLangIsAskedWhetherItLivesByPing(t *testing.T) {
	var status atomic.Int64
	over := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/ping" {
			w.WriteHeader(int(status.Load()))
			return
		}
		select {
		case <-q.Context().Done():
		case <-over:
		}
	}))
	defer srv.Close()
	defer close(over)
	rc := router.DefaultConfig()
	rc.Decode = router.MustEntries(srv.URL)
	rt, err := router.New(rc, 0.25, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	b := rt.Snapshot().Backends(router.Decode)[0]
	d, _ := kvparams.Lookup("sglang")
	s := New(Config{Router: rt, Dialects: kvparams.Reuse{}.Dialects(d), Dial: time.Minute, MaxIdle: time.Second})
	defer s.StopChecks()
	client := upstream.New(upstream.Config{Addr: b.Addr, Host: b.Host, DialTimeout: time.Minute, MaxIdle: time.Second, Scratch: s.scratch})
	defer client.Close()
	s.edit(func(m map[*router.Backend]*engine) { m[b] = &engine{Client: client} })
	s.SetVitalsWait(time.Minute)
	for _, step := range []int64{503, 200} {
		status.Store(step)
		if _, gone := s.Gone(b); gone != (step == 503) {
			t.Errorf("after %d: gone %v", step, gone)
		}
	}
}
