package proxy_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"xpyd/router"
	"xpyd/sim"
)

// ranked puts one port before each pool, and makes a backend of each rank in only.
func ranked(t *testing.T, only ...int) func(c *router.Config) {
	return func(c *router.Config) {
		inTurn(c)
		for _, pool := range []*[]router.Entry{&c.Prefill, &c.Decode} {
			front, err := sim.StartRanks(router.Texts(*pool)...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = front.Close() })
			*pool = nil
			for _, n := range only {
				*pool = append(*pool, router.MustEntries(front.URL()+"@"+strconv.Itoa(n))...)
			}
		}
	}
}

// served counts the completions that each engine had.
func served(engines []*sim.Engine) (n []int) {
	for _, e := range engines {
		n = append(n, len(e.Requests()))
	}
	return n
}

// A rank is a backend of its own: its legs reach its engine, and its handles are read there.
func TestRanksGetTheirLegs(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, decode: 2, router: ranked(t, 0, 1)})
	for _, c := range forms(prompt, 9) {
		r.expectWhole(c, r.call(c))
	}
	r.expectNothingHeld()
	for _, pool := range [][]*sim.Engine{r.prefill, r.decode} {
		if n := served(pool); n[0] != 2 || n[1] != 2 {
			t.Errorf("ranks served %v, want 2 each", n)
		}
	}
	if r.moved() == 0 {
		t.Error("decode computed every prompt itself")
	}
}

// The rank that xpyd has picked counts, whatever the client writes and vLLM would pick itself.
func TestAClientPicksNoRank(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 1, decode: 1, router: func(c *router.Config) {
		other, err := sim.Start(sim.Options{Name: "other", Role: sim.RoleDecode}.Fast())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if n := len(other.Requests()); n != 0 {
				t.Errorf("rank 0 had %d requests that xpyd gave to rank 1", n)
			}
			_ = other.Close()
		})
		front, err := sim.StartRanks(other.URL(), c.Decode[0].URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = front.Close() })
		c.Decode = router.MustEntries(front.URL() + "@1")
	}})
	for range 3 {
		a := r.post("/v1/completions", `{"model":"sim","prompt":"one two three","max_tokens":3}`, "X-data-parallel-rank", "0")
		if a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	if a := r.post("/tokenize", `{"model":"sim","prompt":"x"}`); a.status != 200 {
		t.Errorf("/tokenize: status %d", a.status)
	}
}

// A rank's load is read from its own lines of the page that all ranks share.
func TestLoadOfARank(t *testing.T) {
	front := ""
	r := newRig(t, rigOptions{prefill: 2, decode: 2, router: func(c *router.Config) {
		ranked(t, 0, 1)(c)
		front, _ = router.SplitRank(c.Prefill[0].URL)
		c.Routing.Poll = 10 * time.Millisecond
	}})
	c := forms(prompt, 9)[0]
	r.expectWhole(c, r.call(c))
	queries := func(rank int) float64 {
		return r.metric(fmt.Sprintf(`xpyd_engine_prefix_cache_queries_total{backend="%s@%d",role="prefill"}`, front, rank))
	}
	r.await("read", func() bool { return queries(0)+queries(1) > 0 })
	if a, b := queries(0), queries(1); a > 0 && b > 0 {
		t.Errorf("both ranks have the figures of one request: %v and %v", a, b)
	}
}

// A rank that the pool does not name gets no requests, and the log says so once for the server.
func TestRanksThatThePoolLeavesOut(t *testing.T) {
	pool := ranked(t, 0, 1)
	r := newRig(t, rigOptions{prefill: 2, decode: 2, router: func(c *router.Config) {
		third, err := sim.Start(sim.Options{Name: "third", Role: sim.RolePrefill}.Fast())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = third.Close() })
		c.Prefill = append(c.Prefill, router.MustEntries(third.URL())...)
		pool(c)
		c.Routing.Poll = 10 * time.Millisecond
	}})
	const said = "the engine has 3 data-parallel ranks, of which the pool names 2: the others get no requests"
	r.await("told of the third rank", func() bool { return strings.Contains(r.logs.String(), said) })
	n := r.metric(`xpyd_engine_polls_total`)
	r.await("read again", func() bool { return r.metric(`xpyd_engine_polls_total`) > n+20 })
	if got := strings.Count(r.logs.String(), "data-parallel ranks"); got != 1 {
		t.Errorf("said %d times\n%s", got, r.logs)
	}
}

// A rank that is drained is named by its pool.
func TestADrainedRankIsNotLeftOut(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, decode: 1, router: func(c *router.Config) {
		ranked(t, 0, 1)(c)
		c.Decode = c.Decode[:1]
		c.Prefill[1].State = router.Drain
		c.Routing.Poll = 10 * time.Millisecond
	}})
	r.await("polls", func() bool { return r.metric(`xpyd_engine_polls_total`) > 20 })
	if s := r.logs.String(); strings.Contains(s, "data-parallel ranks") {
		t.Errorf("told of a rank that the pool names\n%s", s)
	}
}
