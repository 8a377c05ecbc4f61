package proxy_test

import (
	"io"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

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
		c.Decode = []string{one.server.URL, other.server.URL}
	}})
	if a := r.call(forms(prompt, 2)[0]); a.status < 500 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var body string
	select {
	case body = <-one.releases:
	case body = <-other.releases:
	case <-time.After(10 * time.Second):
		t.Fatalf("no release\n%s", r.logs)
	}
	mu.Lock()
	defer mu.Unlock()
	at, ok := failed[regexp.MustCompile(`xfer-[^"]*`).FindString(body)]
	if waited := time.Since(at); !ok || waited < 200*time.Millisecond {
		t.Errorf("given back %v after the leg: %s", waited, body)
	}
}
