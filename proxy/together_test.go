package proxy_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tests wait for sockets and timers most of their time, so they run together, more of them than
// there are cores. Each still finds its own goroutines at its end, because goroutines inherit the
// label of their test. A list of them stops all tests for some milliseconds, so each test makes
// one at its end, and none for its subtests or its rigs.

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" { // its workers are not tests, and it listens for signals to the end
		os.Exit(m.Run())
	}
	if err := setUnlessGiven("test.parallel", strconv.Itoa(testsPerCore*runtime.GOMAXPROCS(0))); err != nil {
		panic("BUG: " + err.Error())
	}
	before := len(goroutines())
	code := m.Run()
	if left := leftOver(goroutines, before); left != nil {
		fmt.Printf("%d goroutines, %d before all tests\n%s\n", len(left), before, strings.Join(left, "\n\n"))
		code = max(code, 1)
	}
	os.Exit(code)
}

func setUnlessGiven(name, value string) error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return nil
	}
	return flag.Set(name, value)
}

const testLabel = "test"

// labelled has the names of the tests that run and have their label.
var labelled sync.Map

// alone has t run while no other test does: it measures, or touches what belongs to the
// whole process. It is the first line of its test.
func alone(t *testing.T) {
	t.Helper()
	label(t)
}

// together has t run beside other tests from here on. It does nothing for a test that is alone or
// already runs beside others. A subtest runs as its parent does, which has to say first how that is. Otherwise
// subtests with rigs would run one after the other while all else waits.
func together(t *testing.T) {
	t.Helper()
	if _, done := labelled.Load(t.Name()); done {
		return
	}
	if top, _, sub := strings.Cut(t.Name(), "/"); !sub {
		t.Parallel()
	} else if _, said := labelled.Load(top); !said && !strings.HasPrefix(top, "Fuzz") {
		t.Fatalf("%s has subtests with rigs: its first line is together(t), or alone(t)", top)
	}
	label(t)
}

// label marks the goroutines that t starts from here on. What the test starts has to end with it, or
// with the test around it.
func label(t *testing.T) {
	t.Helper()
	name := t.Name()
	labelled.Store(name, true)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(testLabel, name)))
	top, _, sub := strings.Cut(name, "/")
	_, around := labelled.Load(top)
	t.Cleanup(func() {
		if !sub || !around {
			expectGoroutines(t, 1) // its own
		}
		labelled.Delete(name)
	})
}

// goroutinesOf lists the stacks of the goroutines of a test and its subtests.
func goroutinesOf(test string) []string {
	var profile strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		panic("BUG: a strings.Builder fails: " + err.Error())
	}
	var all []string
	for _, same := range strings.Split(profile.String(), "\n\n") {
		_, label, _ := strings.Cut(same, `"`+testLabel+`":`)
		quoted, _ := strconv.QuotedPrefix(label)
		name, _ := strconv.Unquote(quoted) // empty without a label
		if name != test && !strings.HasPrefix(name, test+"/") || ofFasthttp(same) {
			continue
		}
		count, _, _ := strings.Cut(same, " @ ")
		for n, _ := strconv.Atoi(count[strings.LastIndexByte(count, '\n')+1:]); n > 0; n-- {
			all = append(all, same)
		}
	}
	return all
}

// ofFasthttp reports the two goroutines of fasthttp that stay for a while: its clock, and the
// cleaner of a worker pool that has stopped.
func ofFasthttp(stack string) bool {
	return strings.Contains(stack, "fasthttp.updateServerDate") || strings.Contains(stack, "fasthttp.(*workerPool).Start")
}

// expectGoroutines fails unless t has no more goroutines than before.
func expectGoroutines(t *testing.T, before int) {
	t.Helper()
	if left := leftOver(func() []string { return goroutinesOf(t.Name()) }, before); left != nil {
		t.Errorf("%d goroutines, want %d\n%s", len(left), before, strings.Join(left, "\n\n"))
	}
}

// leftOver waits until no more than before are there, and returns all if there are still more.
func leftOver(list func() []string, before int) []string {
	deadline := time.Now().Add(patience)
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		left := list()
		if len(left) <= before {
			return nil
		}
		if time.Now().After(deadline) {
			return left
		}
		time.Sleep(wait)
	}
}
