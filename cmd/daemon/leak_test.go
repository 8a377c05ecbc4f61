package daemon

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/cmd/config"
	"xpyd/router"
)

// A start that fails because of its traces gives back what it has opened.
func TestStartWithoutItsTracesGivesAllBack(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no value")
	cfg := config.Default()
	cfg.Listen, cfg.Admin, cfg.Router.Decode = "127.0.0.1:0", "127.0.0.1:0", router.MustEntries("http://127.0.0.1:1")
	cfg.Tracing.Endpoint = "http://127.0.0.1:1"
	open := func() (n int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	fail := func() {
		_, err := Start(cfg, "test", zerolog.Nop())
		if err == nil || !strings.HasPrefix(err.Error(), "tracing: OTEL_RESOURCE_ATTRIBUTES: ") {
			t.Fatalf("error %v", err)
		}
	}
	fail() // what is opened once for the whole process
	files, goroutines := open(), runtime.NumGoroutine()
	for range 5 {
		fail()
	}
	for end := time.Now().Add(10 * time.Second); open() > files || runtime.NumGoroutine() > goroutines; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d files and %d goroutines are open, %d and %d before", open(), runtime.NumGoroutine(), files, goroutines)
		}
	}
}
