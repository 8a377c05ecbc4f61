package upstream

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// No goroutine outlives the tests.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" { // a fuzzing run has workers that are no tests, and listens for signals to the end
		os.Exit(m.Run())
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			fmt.Printf("%d goroutines, %d before all tests\n", runtime.NumGoroutine(), before)
			_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 1)
			code = max(code, 1)
			break
		}
	}
	os.Exit(code)
}
