package limits

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func hashOf(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

// holder makes terms whose keys are the words after the name.
func holder(name string, change func(*Terms), keys ...string) Terms {
	t := Terms{Name: name}
	for _, k := range keys {
		t.Hashes = append(t.Hashes, hashOf(k))
	}
	if change != nil {
		change(&t)
	}
	return t
}

func shown(key string) []byte { return []byte("Bearer " + key) }

func TestHolders(t *testing.T) {
	b := NewBook(append(Plain([]string{"sk-plain", "sk-twice"}), holder("team", nil, "sk-old", "sk-new"), holder("other", nil, "sk-twice")), 0)
	for key, want := range map[string]string{"sk-plain": "key-1", "sk-old": "team", "sk-new": "team", "sk-twice": "other"} {
		if a, ok := b.Holder(shown(key)); !ok || a.Name != want {
			t.Errorf("%s is held by %q, %v; want %s", key, a.Label(), ok, want)
		}
	}
	for _, wrong := range []string{"", "Bearer ", "Bearer sk-none", "Basic sk-old"} {
		if a, ok := b.Holder([]byte(wrong)); ok || a != nil {
			t.Errorf("%q lets in %s", wrong, a.Label())
		}
	}
	open := NewBook(nil, 5)
	if a, ok := open.Holder(nil); !ok || a != nil || open.Required() || !a.Allows(nil) || !a.Priority() || a.Number() != 0 {
		t.Error("without keys somebody is kept out or limited")
	}
}

// A use of no account refuses nothing and costs nothing.
func TestNoAccountCostsNothing(t *testing.T) {
	unlimited, _ := NewBook(Plain([]string{"k"}), 0).Holder(shown("k"))
	for name, a := range map[string]*Account{"no keys": nil, "a key without limits": unlimited} {
		set := func(string, string) { t.Errorf("%s: a header is sent", name) }
		now := time.Now()
		if n := testing.AllocsPerRun(100, func() {
			var u Use
			if u.Begin(a, now) != nil || u.Charge(1<<40, now) != nil || !u.Allows(nil) {
				t.Fatalf("%s: refused", name)
			}
			u.Headers(now, set)
			u.End(1 << 40)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func one(t *testing.T, change func(*Terms)) *Account {
	t.Helper()
	a, ok := NewBook([]Terms{holder("team", change, "k")}, 0).Holder(shown("k"))
	if !ok {
		t.Fatal("the key is not known")
	}
	return a
}

func TestInFlight(t *testing.T) {
	a := one(t, func(t *Terms) { t.InFlight = 2 })
	now := time.Now()
	var first, second, third Use
	if first.Begin(a, now) != nil || second.Begin(a, now) != nil {
		t.Fatal("refused below the limit")
	}
	if r := third.Begin(a, now); r == nil || r.Limit != InFlight {
		t.Fatalf("a third of two: %+v", r)
	}
	third.End(0) // it had not begun
	if r := third.Begin(a, now); r == nil {
		t.Fatal("the end of a request that was refused made room")
	}
	first.End(0)
	first.End(0) // only the first end counts
	if third.Begin(a, now) != nil {
		t.Error("refused after another has ended")
	}
	if r := first.Begin(a, now); r == nil {
		t.Error("a second end of the same request made room")
	}
}

func TestRequestsPerMinute(t *testing.T) {
	a := one(t, func(t *Terms) { t.RequestsPerMinute = 60 })
	start := time.Now()
	var u Use
	for i := range 60 {
		if r := u.Begin(a, start); r != nil {
			t.Fatalf("request %d: %+v", i, r)
		}
		u.End(0)
	}
	r := u.Begin(a, start.Add(250*time.Millisecond))
	if r == nil || r.Limit != Requests || r.Wait.Round(time.Millisecond) != 750*time.Millisecond {
		t.Fatalf("after 60 in 0.25 s: %+v, want a wait of 0.75 s", r)
	}
	if r := u.Begin(a, start.Add(1001*time.Millisecond)); r != nil {
		t.Errorf("after the wait: %+v", r)
	}
	admitted := 0
	for at := start.Add(time.Minute); at.Before(start.Add(2 * time.Minute)); at = at.Add(10 * time.Millisecond) {
		if u.Begin(a, at) == nil {
			admitted++
		}
	}
	// What was left after a minute, and a minute's refill.
	if admitted < 115 || admitted > 120 {
		t.Errorf("%d requests in the second minute", admitted)
	}
}

func TestTokensPerMinute(t *testing.T) {
	a := one(t, func(t *Terms) { t.TokensPerMinute = 6000 })
	now := time.Now()
	var u, v Use
	if u.Begin(a, now) != nil || u.Charge(5000, now) != nil {
		t.Fatal("refused below the limit")
	}
	if r := v.Charge(1, now); r != nil {
		t.Fatal("a use of nobody is refused")
	}
	_ = v.Begin(a, now)
	if r := v.Charge(2000, now); r == nil || r.Limit != Tokens || r.Wait.Round(time.Second) != 10*time.Second {
		t.Fatalf("2000 of 1000: %+v, want a wait of 10 s", r)
	}
	u.End(6500) // the estimate was too low, and the answer counts too
	if r := v.Charge(1, now); r == nil || r.Wait.Round(time.Millisecond) != 5010*time.Millisecond {
		t.Fatalf("with a debt of 500: %+v, want a wait of 5.01 s", r)
	}
	now = now.Add(20 * time.Second)
	if r := v.Charge(1500, now); r != nil {
		t.Fatalf("after the debt is paid: %+v", r)
	}
	v.End(0) // it failed, and cost nothing
	if r := v.Charge(1500, now); r != nil {
		t.Errorf("after a request that cost nothing: %+v", r)
	}
	v.End(1500)
	now = now.Add(time.Hour)
	if r := v.Charge(50000, now); r != nil {
		t.Errorf("a prompt beyond the limit, with all of it left: %+v", r)
	}
	if r := u.Begin(a, now); r != nil {
		t.Fatal(r)
	}
	if r := u.Charge(1, now); r == nil || r.Wait < 7*time.Minute {
		t.Errorf("after a prompt of 8 minutes: %+v", r)
	}
}

func TestHeaders(t *testing.T) {
	a := one(t, func(t *Terms) { t.RequestsPerMinute, t.TokensPerMinute = 60, 6000 })
	now := time.Now()
	var u Use
	if u.Begin(a, now) != nil || u.Charge(100, now) != nil {
		t.Fatal("refused")
	}
	var got []string
	u.Headers(now, func(name, value string) { got = append(got, name+": "+value) })
	want := []string{
		"x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 59", "x-ratelimit-reset-requests: 1s",
		"x-ratelimit-limit-tokens: 6000", "x-ratelimit-remaining-tokens: 5900", "x-ratelimit-reset-tokens: 1s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = nil
	u.End(100000)
	u.Headers(now, func(name, value string) { got = append(got, name+": "+value) })
	if !slices.Contains(got, "x-ratelimit-remaining-tokens: 0") || !slices.Contains(got, "x-ratelimit-reset-tokens: 16m40s") {
		t.Errorf("with a debt: %q", got)
	}
}

func TestModels(t *testing.T) {
	a := one(t, func(t *Terms) { t.Models = []string{"qwen", "llama-*"} })
	for model, want := range map[string]bool{"qwen": true, "llama-3": true, "llama-": true, "qwen-2": false, "llama": false, "": false, "*": false} {
		if a.Allows([]byte(model)) != want {
			t.Errorf("%q: allowed %v", model, !want)
		}
	}
	if a.Allows(nil) || !one(t, func(t *Terms) { t.Models = []string{"*"} }).Allows([]byte("x")) {
		t.Error("a request without a model is let through, or * lets none")
	}
	list := `{"object":"list","data":[{"id":"qwen","object":"model","owned_by":"vllm","max_model_len":40960},{"id":"gpt"},{"id":"llama-3","root":"/m"}]}`
	want := `{"object":"list","data":[{"id":"qwen","object":"model","owned_by":"vllm","max_model_len":40960},{"id":"llama-3","root":"/m"}]}`
	if got := string(a.Narrow([]byte(list))); got != want {
		t.Errorf("narrowed to %s", got)
	}
	if got := string(one(t, nil).Narrow([]byte(list))); got != list {
		t.Errorf("without models narrowed to %s", got)
	}
	none := one(t, func(t *Terms) { t.Models = []string{"none"} })
	if got := string(none.Narrow([]byte(list))); got != `{"object":"list","data":[]}` {
		t.Errorf("with no model left: %s", got)
	}
}

// New terms hold for requests that follow. What a holder has under way and has spent stays.
func TestReplace(t *testing.T) {
	limited := func(n int) func(*Terms) { return func(t *Terms) { t.InFlight, t.RequestsPerMinute = n, 10*n } }
	b := NewBook([]Terms{holder("a", limited(1), "k-a"), holder("b", nil, "k-b"), holder("c", nil, "k-c")}, 0)
	a, _ := b.Holder(shown("k-a"))
	now := time.Now()
	var running, next Use
	if running.Begin(a, now) != nil {
		t.Fatal("refused")
	}
	got := b.Replace([]Terms{holder("a", limited(2), "k-a2"), holder("c", nil, "k-c"), holder("d", nil, "k-b")}, 0)
	if want := (Change{Joined: []string{"d"}, Left: []string{"b"}, Changed: []string{"a"}}); fmt.Sprint(got) != fmt.Sprint(want) || got.None() {
		t.Errorf("changed %+v, want %+v", got, want)
	}
	if _, ok := b.Holder(shown("k-a")); ok {
		t.Error("a key that is gone still lets in")
	}
	if again, ok := b.Holder(shown("k-a2")); !ok || again != a {
		t.Error("the new key of a name has another account")
	}
	if d, _ := b.Holder(shown("k-b")); d.Name != "d" || d.ID <= 3 {
		t.Errorf("a key that moved is held by %q, number %d", d.Name, d.Number())
	}
	if next.Begin(a, now) != nil {
		t.Error("the new limit does not hold")
	}
	if r := new(Use).Begin(a, now); r == nil || r.Limit != InFlight {
		t.Errorf("requests from before the change do not count: %+v", r)
	}
	if change := b.Replace([]Terms{holder("a", limited(2), "k-a2"), holder("c", nil, "k-c"), holder("d", nil, "k-b")}, 0); !change.None() {
		t.Errorf("the same terms changed %+v", change)
	}
	if change := b.Replace([]Terms{holder("a", limited(2), "k-a2"), holder("c", nil, "k-c"), holder("d", nil, "k-b")}, 5); fmt.Sprint(change.Changed) != "[c d]" {
		t.Errorf("the limit of all who have none of their own changed %+v", change)
	}
	if b.Fits(nil) == nil || NewBook(nil, 0).Fits([]Terms{{Name: "x"}}) == nil || b.Fits([]Terms{{Name: "x"}}) != nil {
		t.Error("the last key can go, or the first can come, or others cannot change")
	}
}

func TestLimitForAll(t *testing.T) {
	b := NewBook([]Terms{holder("own", func(t *Terms) { t.InFlight = 3 }, "k1"), holder("none", nil, "k2")}, 1)
	for key, want := range map[string]int{"k1": 3, "k2": 1} {
		a, _ := b.Holder(shown(key))
		n := 0
		for ; new(Use).Begin(a, time.Now()) == nil; n++ {
		}
		if n != want {
			t.Errorf("%s: %d at a time, want %d", a.Name, n, want)
		}
	}
}

// Whatever runs at the same time, all that was counted is given back.
func TestRace(t *testing.T) {
	terms := func(i int) []Terms {
		return []Terms{holder("a", func(t *Terms) { t.InFlight, t.TokensPerMinute = 4+i, 1000000+i }, "k")}
	}
	b := NewBook(terms(0), 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				a, _ := b.Holder(shown("k"))
				var u Use
				now := time.Now()
				if u.Begin(a, now) == nil && u.Charge(10, now) == nil {
					u.Headers(now, func(string, string) {})
				}
				u.End(rand.IntN(20))
			}
		})
	}
	for i := range 100 {
		b.Replace(terms(i), 0)
	}
	wg.Wait()
	a, _ := b.Holder(shown("k"))
	if a.inFlight != 0 {
		t.Errorf("%d in flight at the end", a.inFlight)
	}
}

func BenchmarkUse(b *testing.B) {
	terms := holder("a", func(t *Terms) { t.InFlight, t.RequestsPerMinute, t.TokensPerMinute = 1<<30, 1<<30, 1<<30 }, "k")
	book := NewBook([]Terms{terms}, 0)
	authorization := shown("k")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a, _ := book.Holder(authorization)
			var u Use
			now := time.Now()
			if u.Begin(a, now) != nil || u.Charge(1, now) != nil {
				b.Error("refused")
			}
			u.End(1)
		}
	})
}
