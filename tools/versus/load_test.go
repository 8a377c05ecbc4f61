package versus

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// inProcess is the relay as a contender without a process of its own.
func inProcess(t *testing.T) contender {
	t.Helper()
	return contender{name: nameRelay, start: func(ctx context.Context, to target) (*running, error) {
		said, say := io.Pipe()
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(ctx)
		go func() { ended <- Relay(ctx, to.decode[0], say) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		buf := make([]byte, 100)
		n, err := said.Read(buf)
		addr := strings.TrimSuffix(strings.TrimPrefix(string(buf[:n]), `{"listen":"`), "\"}\n")
		return &running{addr: addr}, err
	}}
}

// Each kind of load goes straight to the engines, and through a relay.
func TestLoadIsCounted(t *testing.T) {
	for _, tc := range []struct {
		name string
		s    shape
		want func(v map[metric]float64) bool
	}{
		{"whole answers", shape{load: load{conns: 4, body: oneKiB}},
			func(v map[metric]float64) bool { return v[requestsS] > 10 }},
		{"large bodies", shape{load: load{conns: 2, body: 1 << 20}},
			func(v map[metric]float64) bool { return v[requestsS] > 1 }},
		{"unpaced streams", shape{load: load{conns: 4, chat: true, body: oneKiB}, pace: pacing{events: 20}},
			func(v map[metric]float64) bool { return v[eventsS] > 5*v[requestsS] && v[requestsS] > 1 }},
		{"paced streams", shape{load: load{conns: 4, chat: true, body: oneKiB, delays: true}, pace: pacing{events: 1 << 30, interval: 20 * time.Millisecond}},
			func(v map[metric]float64) bool {
				return v[requestsS] == 0 && v[eventsS] > 50 && v[eventsS] < 5000 && v[delay50] > 0 && v[delay99] >= v[delay50]
			}},
		{"a pause between requests", shape{load: load{conns: 2, chat: true, body: oneKiB, delays: true, pause: 20 * time.Millisecond}, pace: pacing{events: 2}},
			func(v map[metric]float64) bool { return v[requestsS] > 2 && v[requestsS] < 150 && v[ttft50] > 0 }},
		{"streams that wait", shape{load: load{conns: 50, chat: true, body: oneKiB, hold: 2}, pace: pacing{events: 2, interval: 20 * time.Millisecond, hold: true}},
			func(v map[metric]float64) bool { return v[eventsS] == 0 }},
	} {
		for _, c := range []contender{direct(), inProcess(t)} {
			for _, kind := range (&Options{}).loads() {
				tc.s.decodes, tc.s.prefills = 1, 1
				r := &run{o: Options{Window: 300 * time.Millisecond, Out: t.TempDir()}}
				var v map[metric]float64
				var err error
				for range 8 { // a machine that stalls spoils a window
					if v, err = r.measure(t.Context(), kind, tc.s, c); err == nil && tc.want(v) {
						break
					}
				}
				if err != nil {
					t.Errorf("%s, %s, %s: %v", tc.name, kind, c.name, err)
				} else if !tc.want(v) {
					t.Errorf("%s, %s, %s: %v", tc.name, kind, c.name, v)
				}
			}
		}
	}
}

// A proxy of two legs that sends nothing to a prefill engine is not measured.
func TestMissingLegIsAnError(t *testing.T) {
	lazy := direct()
	lazy.legs = 2
	r := &run{o: Options{Window: 50 * time.Millisecond, Out: t.TempDir()}}
	for _, kind := range r.o.loads() {
		var err error
		for range 8 { // a machine that stalls spoils a window
			if _, err = r.measure(t.Context(), kind, shape{prefills: 1, decodes: 1, load: load{conns: 1, body: oneKiB}}, lazy); !errors.Is(err, errNothing) {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), "0 of ") {
			t.Errorf("%s: error %v", kind, err)
		}
	}
}

// A look at the proxy takes milliseconds. A load that rested meanwhile would take what came for late, and
// one that did not count it would take the proxy's CPU of that time for that of other events.
func TestLoadGoesOnWhileTheProxyIsLookedAt(t *testing.T) {
	const conns, more = 2, 50
	for _, kind := range (&Options{}).loads() {
		e, err := startFleet(kind, shape{prefills: 1, decodes: 1})
		if err != nil {
			t.Fatal(err)
		}
		var passed atomic.Int64
		onward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: e.decode[0]})
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			onward.ServeHTTP(w, r)
			passed.Add(1)
		}))
		look := func(end bool) error {
			bound := time.Now().Add(10 * time.Second)
			for from := passed.Load(); passed.Load() < from+more; time.Sleep(time.Millisecond) {
				if time.Now().After(bound) {
					t.Errorf("%s: %d answers passed while the proxy was looked at, want %d (at the end of the window: %v)", kind, passed.Load()-from, more, end)
					return nil
				}
			}
			return nil
		}
		seen, err := runLoad(t.Context(), kind, proxy.Listener.Addr().String(), load{conns: conns, body: oneKiB, window: time.Nanosecond}, look)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if seen.Requests < more-2*conns {
			t.Errorf("%s: %d requests counted, want those of the last look, about %d", kind, seen.Requests, more)
		}
		proxy.Close()
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}
}
