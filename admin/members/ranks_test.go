package members

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/router"
)

func (r *rig) expectDecode(what, want string) {
	r.t.Helper()
	if got := strings.Join(router.Texts(r.Config().Decode), ", "); got != want {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (r *rig) found(engine string, ranks int) {
	r.t.Helper()
	if _, err := r.Ranks(engine, ranks); err != nil {
		r.t.Fatal(err)
	}
}

// What an engine says takes the place of its entry, with all that stands after the URL, and is put in force when it
// changes.
func TestRanksThatAnEngineSays(t *testing.T) {
	r := newRig(t, pools("http://p:1", "http://d:1 http://e:1@auto"), "")
	r.base.Decode[1].Weight = 2
	if err := r.Rebase(r.base, r.take); err != nil {
		t.Fatal(err)
	}
	r.expectDecode("nothing known", "http://d:1, http://e:1@auto weight=2")
	r.found("http://e:1", 2)
	r.expectDecode("two", "http://d:1, http://e:1@0 weight=2, http://e:1@1 weight=2")
	puts := len(r.put)
	r.found("http://e:1", 2)
	r.found("http://d:1", 4)
	r.found("http://nobody:1", 4)
	if len(r.put) != puts {
		t.Errorf("put in force again: %v", r.put[puts:])
	}
	r.found("http://e:1", 1)
	r.expectDecode("one", "http://d:1, http://e:1 weight=2")
	if !slices.Equal(r.Config().Found, []string{"http://e:1"}) {
		t.Errorf("found are %v", r.Config().Found)
	}
	for _, ranks := range []int{0, -1, router.MaxRanks + 1} {
		if _, err := r.Ranks("http://e:1", ranks); err == nil {
			t.Errorf("%d ranks", ranks)
		}
	}
	r.expectDecode("too many", "http://d:1, http://e:1 weight=2")
}

// Ranks that do not fit, or cannot be put in force, change nothing.
func TestRanksThatCannotBeInForce(t *testing.T) {
	r := newRig(t, pools("http://p:1", "http://d:1 http://bad:1@auto"), "")
	if _, err := r.Ranks("http://bad:1", 2); err == nil || !strings.Contains(err.Error(), "no place here") {
		t.Errorf("%v", err)
	}
	r.expectDecode("refused", "http://d:1, http://bad:1@auto")
	r = newRig(t, pools("http://p:1", "http://d:1 http://e:1@auto"), "")
	r.fail = unknown("x", nil)
	if _, err := r.Ranks("http://e:1", 2); err == nil {
		t.Error("no error")
	}
	r.expectDecode("failed", "http://d:1, http://e:1@auto")
}

// An engine that says how many ranks it has is changed as a whole. One rank of it is refused, with what to do instead. What an
// old state file says of one is dropped.
func TestEditsOfRanksThatAreFound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	old := `{"version":1,"edits":[{"url":"http://d:1","weight":3},{"url":"http://e:1@1","state":"drain"},{"url":"http://e:1@7","added":true,"role":"decode"}]}`
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	base := pools("http://p:1", "http://d:1 http://e:1@auto")
	r := newRig(t, base, file)
	for _, rank := range []string{"http://e:1@1", "http://e:1@7"} {
		if !strings.Contains(r.log.String(), rank+" is a rank of an engine that says itself which ranks it has: it is changed as a whole") {
			t.Errorf("nothing of %s in the log: %s", rank, r.log.String())
		}
	}
	r.found("http://e:1", 2)
	const want = "http://e:1@1 is a rank of http://e:1, whose ranks are those that it says it has; change http://e:1@auto as a whole, or write its ranks out in the configuration, as http://e:1@0..1"
	for _, id := range []string{"e:1@1", "http://E:1@1"} {
		_, changed := r.Change(id, Edit{State: router.Drain})
		_, moved := r.Change(id, Edit{Role: "prefill"})
		_, removed := r.Remove(id, "")
		for _, err := range []error{changed, moved, removed} {
			if refused := new(Error); !errors.As(err, &refused) || refused.Kind != Conflict || err.Error() != want {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if _, err := r.Add(Edit{URL: "http://e:1@1", Role: "decode"}); err == nil || !strings.Contains(err.Error(), "http://e:1@auto is in the pools already") {
		t.Errorf("%v", err)
	}
	if _, err := r.Change("e:1@2", Edit{State: router.Drain}); err == nil || !strings.Contains(err.Error(), "there is no backend e:1@2") {
		t.Errorf("%v", err)
	}
	r.expectDecode("refused", "http://d:1 weight=3, http://e:1@0, http://e:1@1")
	if full, err := r.Change("http://e:1", Edit{Weight: 5}); err != nil || full != "http://e:1@auto" {
		t.Errorf("%q, %v", full, err)
	}
	r.expectDecode("weight", "http://d:1 weight=3, http://e:1@0 weight=5, http://e:1@1 weight=5")
	r = newRig(t, base, file)
	r.expectDecode("restarted", "http://d:1 weight=3, http://e:1@auto weight=5")
	r.must(r.Remove("e:1@auto", ""))
	r.expectDecode("removed", "http://d:1 weight=3")
	if err := r.Rebase(pools("http://p:1", "http://d:1"), r.take); err != nil {
		t.Fatal(err)
	}
	if edits, _ := r.Edits(); len(edits) != 1 {
		t.Errorf("%v", edits)
	}
}

// Written ranks count as known when the configuration says @auto of them, and the other way round.
func TestWrittenRanksCountAsKnown(t *testing.T) {
	r := newRig(t, pools("http://p:1", "http://e:1@0 http://e:1@1 http://f:1"), "")
	for _, tc := range [][2]string{
		{"http://e:1@auto http://f:1@auto", "http://e:1@0, http://e:1@1, http://f:1"},
		{"http://e:1@0 http://f:1@auto", "http://e:1@0, http://f:1"},
		{"http://e:1@auto http://g:1@auto", "http://e:1, http://g:1@auto"},
	} {
		if err := r.Rebase(pools("http://p:1", tc[0]), r.take); err != nil {
			t.Fatal(err)
		}
		r.expectDecode(tc[0], tc[1])
	}
}

// A process that has handed over still sees how many ranks an engine has. The state file is its successor's by then, which
// may have edits of its own.
func TestRanksLeaveTheStateFileAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	base := pools("http://p:1", "http://d:1 http://e:1@auto")
	old := newRig(t, base, file)
	old.found("http://e:1", 3)
	old.must(old.Change("e:1", Edit{State: router.Drain}))
	old.Hold(true)

	next := newRig(t, base, file)
	next.found("http://e:1", 3)
	next.must(next.Change("e:1", Edit{Weight: 2}))
	next.must(next.Change("d:1", Edit{State: router.Drain}))
	saved := readFile(t, file)
	for _, ranks := range []int{2, 4} {
		old.found("http://e:1", ranks)
		next.found("http://e:1", ranks)
		if now := readFile(t, file); now != saved {
			t.Errorf("%d ranks: the file is %s, want %s", ranks, now, saved)
		}
	}
	old.expectDecode("before the hand-over", "http://d:1, http://e:1@0 state=drain, http://e:1@1 state=drain, http://e:1@2 state=drain, http://e:1@3 state=drain")

	// A file that cannot be written does not matter either.
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	next.found("http://e:1", 1)
	next.expectDecode("no file", "http://d:1 state=drain, http://e:1 weight=2 state=drain")
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each poll tells a number, and most of them tell the one that is known.
func TestANumberThatIsKnownCostsNothing(t *testing.T) {
	r := newRig(t, pools("http://p:1", "http://d:1 http://e:1@auto"), "")
	r.found("http://e:1", 512)
	if n := testing.AllocsPerRun(10, func() { r.found("http://e:1", 512) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// reload puts another decode pool into the configuration.
func (r *rig) reload(decode string) {
	r.t.Helper()
	if err := r.Rebase(pools("http://p:1", decode), r.take); err != nil {
		r.t.Fatal(err)
	}
}

// An engine that an operator has drained or removed stays that when the configuration changes how it writes the engine.
func TestEditsFollowAnEngineThatIsWrittenOtherwise(t *testing.T) {
	r := newRig(t, pools("http://p:1", "http://d:1 http://e:1 http://f:1"), filepath.Join(t.TempDir(), "state.json"))
	r.must(r.Change("e:1", Edit{State: router.Drain}))
	r.must(r.Remove("f:1", ""))
	r.reload("http://d:1 http://e:1@auto http://f:1@auto")
	r.expectDecode("found", "http://d:1, http://e:1 state=drain")
	r.found("http://e:1", 3)
	r.expectDecode("three", "http://d:1, http://e:1@0 state=drain, http://e:1@1 state=drain, http://e:1@2 state=drain")
	r.reload("http://d:1 http://e:1@0 http://e:1@1 http://f:1@0 http://f:1@1")
	r.expectDecode("written", "http://d:1, http://e:1@0 state=drain, http://e:1@1 state=drain")
	r.must(r.Change("e:1@0", Edit{State: router.Ready}))
	r.must(r.Add(Edit{URL: "http://f:1@1", Role: "decode"}))
	r.expectDecode("undone", "http://d:1, http://e:1@0, http://e:1@1 state=drain, http://f:1@1")

	r = newRig(t, pools("http://p:1", "http://d:1 http://e:1@auto"), "")
	r.must(r.Change("e:1", Edit{State: router.Drain}))
	r.reload("http://d:1 http://e:1")
	r.expectDecode("whole", "http://d:1, http://e:1 state=drain")
	r.must(r.Change("e:1", Edit{State: router.Ready}))
	if edits, _ := r.Edits(); len(edits) != 0 || strings.Contains(r.log.String(), "dropped") {
		t.Errorf("%v are left; log %s", edits, r.log.String())
	}
}

// An engine that was taken out as the configuration writes it and put in otherwise is in the pools as it was put in.
func TestAnEngineThatIsPutInOtherwise(t *testing.T) {
	r := newRig(t, pools("http://p:1", "http://d:1 http://e:1@0 http://e:1@1 http://f:1@auto"), "")
	if _, err := r.Add(Edit{URL: "http://e:1@auto", Role: "decode"}); err == nil || !strings.Contains(err.Error(), "http://e:1@0 is in the decode pool already") {
		t.Errorf("%v", err)
	}
	r.must(r.Remove("e:1@0", ""))
	r.must(r.Remove("e:1@1", ""))
	r.must(r.Add(Edit{URL: "http://e:1@auto", Role: "decode"}))
	r.found("http://e:1", 3)
	r.must(r.Remove("e:1", ""))
	r.expectDecode("out again", "http://d:1, http://f:1@auto")
	r.must(r.Add(Edit{URL: "http://e:1@auto", Role: "decode"}))
	r.must(r.Remove("f:1", ""))
	r.must(r.Add(Edit{URL: "http://f:1", Role: "decode"}))
	r.found("http://e:1", 3)
	in := "http://e:1@0, http://e:1@1, http://e:1@2, http://f:1"
	r.expectDecode("put in", "http://d:1, "+in)
	r.reload("http://d:1 http://f:1@auto http://e:1@0 http://e:1@1")
	r.expectDecode("the same", "http://d:1, "+in)
	r.reload("http://d:1 http://e:1@auto http://f:1")
	r.expectDecode("as it is by now", "http://d:1, "+in)
	if edits, _ := r.Edits(); len(edits) != 0 {
		t.Errorf("%v are left", edits)
	}
	r.reload("http://d:1 http://e:1@auto http://f:1@auto")
	r.must(r.Remove("e:1", ""))
	r.expectDecode("removed", "http://d:1, http://f:1")
}

// What was changed about written ranks goes where the configuration has the engine with @auto since.
func TestEditsThatNoRankHasByItself(t *testing.T) {
	r := newRig(t, pools("http://p:1 http://g:1@0 http://g:1@1", "http://d:1 http://e:1@0 http://e:1@1"), "")
	r.must(r.Change("e:1@1", Edit{State: router.Drain, Weight: 2}))
	r.must(r.Remove("e:1@0", ""))
	r.must(r.Add(Edit{URL: "http://f:1@0", Role: "decode", State: router.Drain}))
	for _, rank := range []string{"http://g:1@0", "http://g:1@1"} {
		r.must(r.Remove(rank, ""))
		r.must(r.Add(Edit{URL: rank, Role: "decode", Connector: "mooncake"}))
	}
	base := pools("http://p:1 http://g:1@auto", "http://d:1 http://e:1@auto http://f:1@auto")
	if err := r.Rebase(base, r.take); err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"http://e:1", "http://f:1", "http://g:1"} {
		r.found(engine, 2)
	}
	r.expect("http://p:1, http://g:1@0, http://g:1@1", "http://d:1, http://e:1@0, http://e:1@1, http://f:1@0, http://f:1@1")
	for _, rank := range []string{"http://e:1@0", "http://e:1@1", "http://f:1@0", "http://g:1@0", "http://g:1@1"} {
		if !strings.Contains(r.log.String(), rank+" is a rank of an engine that says itself") {
			t.Errorf("nothing of %s in the log: %s", rank, r.log.String())
		}
	}
	if edits, _ := r.Edits(); len(edits) != 0 {
		t.Errorf("%v are left", edits)
	}
}

// The ranks that the configuration wrote before say nothing of a restart, but those that the engine said do.
func TestAnEngineThatSaysAnotherNumberHasRestarted(t *testing.T) {
	r := newRig(t, pools("http://p:1", "http://d:1 http://e:1"), "")
	r.reload("http://d:1 http://e:1@auto")
	steps := []struct {
		decode    string // "" leaves it
		ranks     int
		restarted bool
	}{
		{"", 2, false},
		{"", 2, false},
		{"", 1, true},
		{"http://d:1 http://e:1@0 http://e:1@1 http://e:1@2", 2, false}, // an operator's
		{"http://d:1 http://e:1@auto", 2, false},
		{"", 3, true},
	}
	for i, step := range steps {
		if step.decode != "" {
			r.reload(step.decode)
		}
		if restarted, err := r.Ranks("http://e:1", step.ranks); err != nil || restarted != step.restarted {
			t.Errorf("step %d: restarted is %v, %v", i, restarted, err)
		}
	}
}

// A change may take long to write the state file. Health checks and polls do not wait for it.
func TestANumberThatIsKnownWaitsForNoChange(t *testing.T) {
	r := newRig(t, pools("http://p:1", "http://d:1 http://e:1@auto"), "")
	r.found("http://e:1", 2)
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Ranks("http://e:1", 2)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("it waits for a change of the pools")
	}
}
