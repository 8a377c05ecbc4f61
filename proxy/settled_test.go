package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

// Decode fails, and the prefill engine holds blocks that nobody can name, because its bootstrap server does
// not answer any more. They wait for a time limit, which shows in the metrics.
func TestBlocksThatNobodyNamesAreCounted(t *testing.T) {
	d, _ := kvparams.Lookup("mooncake")
	var dead atomic.Bool
	r := newRig(t, rigOptions{dialect: d, router: func(c *router.Config) {
		url, port, _ := strings.Cut(c.Prefill[0].String(), " bootstrap=")
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if dead.Load() {
				w.WriteHeader(500)
				return
			}
			status, body := ask("http://127.0.0.1:"+port, q.Method, q.URL.RequestURI(), nil, nil)
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}))
		t.Cleanup(front.Close)
		c.Prefill = router.MustEntries(url + " bootstrap=" + front.URL[strings.LastIndexByte(front.URL, ':')+1:])
		c.Health.Interval = time.Hour
	}})
	dead.Store(true)
	if a := r.call(forms(prompt+"[[D:status=500]]", 2)[0]); a.status < 500 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.await("counted", func() bool { return r.metric(`xpyd_kv_orphans_total{reason="unusable_handle"}`) == 1 })
}

// A decode engine that has failed a leg may still be about to read the blocks. They are given back only
// after it has had time to abort, also where xpyd has made the handle itself.
func TestReleaseOfABrokenPairWaits(t *testing.T) {
	d, _ := kvparams.Lookup("mooncake")
	var mu sync.Mutex
	failed := map[string]time.Time{} // by transfer id
	fail := func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		mu.Lock()
		failed["xfer-"+q.Header.Get("X-Request-Id")] = time.Now()
		mu.Unlock()
		w.WriteHeader(500)
	}
	one, other := newStub(t, fail), newStub(t, fail)
	r := newRig(t, rigOptions{decode: 2, dialect: d, router: func(c *router.Config) {
		c.Decode = router.MustEntries(one.server.URL, other.server.URL)
	}})
	if a := r.call(forms(prompt, 2)[0]); a.status < 500 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var body string
	select {
	case body = <-one.releases:
	case body = <-other.releases:
	case <-time.After(patience):
		t.Fatalf("no release\n%s", r.logs)
	}
	mu.Lock()
	defer mu.Unlock()
	at, ok := failed[regexp.MustCompile(`xfer-[^"]*`).FindString(body)]
	if waited := time.Since(at); !ok || waited < 200*time.Millisecond {
		t.Errorf("given back %v after the leg: %s", waited, body)
	}
}
