package engines

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

// A decode engine that dies fails many requests at once. They do not all ask the prefill engine's
// bootstrap server on their own: an answer to a question that was put after they failed serves them too.
func TestPeerIsAskedForTogether(t *testing.T) {
	var asked atomic.Int32
	var goOn atomic.Pointer[chan struct{}]
	bootstrap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-*goOn.Load()
		_, _ = io.WriteString(w, `{"0":{"engine_id":"e"}}`)
	}))
	defer bootstrap.Close()
	mooncake, _ := kvparams.Lookup("mooncake")
	rc := router.DefaultConfig()
	rc.Health.Timeout = time.Minute
	rc.Prefill = router.MustEntries("http://" + silentBackend(t) + " bootstrap=" + bootstrap.URL[len("http://127.0.0.1:"):])
	rc.Decode = router.MustEntries("http://" + silentBackend(t))
	rt, err := router.New(rc, 0.25, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Router: rt, Dialects: kvparams.Reuse{}.Dialects(mooncake), Dial: time.Minute, MaxIdle: time.Second, Answer: 1 << 20,
		Silence: func() time.Duration { return time.Minute }, AbortGrace: func() time.Duration { return time.Second },
		Guard:    func(f func()) bool { f(); return true },
		WarmedUp: func(bool) {}, Polled: func(bool) {}, Ejected: func(_, _, _ string) {}, Forget: func(string) {},
	})
	s.Start()
	defer func() { s.Stop(); s.Close() }()
	b := rt.Snapshot().Backends(router.Prefill)[0]
	const requests = 50
	for try := 1; ; try++ {
		asked.Store(0)
		hold := make(chan struct{})
		goOn.Store(&hold)
		var begun, ended sync.WaitGroup
		begun.Add(requests)
		for range requests {
			ended.Go(func() {
				begun.Done()
				if peer := s.AskPeer(b); peer == nil || peer.EngineID != "e" {
					t.Errorf("%+v", peer)
				}
			})
		}
		begun.Wait()
		for end := time.Now().Add(30 * time.Second); asked.Load() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				close(hold)
				t.Fatalf("none of %d requests asked in 30 s", requests)
			}
		}
		time.Sleep(100 * time.Millisecond) // the more of them ask by themselves, if they do
		close(hold)
		ended.Wait()
		n := asked.Load()
		if n <= requests/5 {
			return
		}
		if try == 10 { // those that were held up and came late ask again, but not each time
			t.Fatalf("%d requests asked %d times", requests, n)
		}
	}
}
