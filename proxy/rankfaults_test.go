package proxy_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// twoServers puts two ports with two ranks each before four decode engines.
func twoServers(t *testing.T, urls *[4]string) func(c *router.Config) {
	return func(c *router.Config) {
		inTurn(c)
		engines := c.Decode
		c.Decode = nil
		for i := 0; i < 4; i += 2 {
			front, err := sim.StartRanks(router.Texts(engines[i : i+2])...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = front.Close() })
			for rank := range 2 {
				urls[i+rank] = front.URL() + "@" + strconv.Itoa(rank)
				c.Decode = append(c.Decode, router.MustEntries(urls[i+rank])...)
			}
		}
		c.Health.EjectAfter, c.Health.EjectFor, c.Health.EjectMax = 2, time.Hour, time.Hour
		c.Health.Interval, c.Health.SuspectInterval = 20*time.Millisecond, 20*time.Millisecond
	}
}

// One rank that fails or hangs is ejected. The other ranks of its server and the other server are not, and
// clients get their answers.
func TestOneRankIsEjectedAlone(t *testing.T) {
	together(t)
	for name, spoil := range map[string]func(e *sim.Engine) error{
		"broken": func(e *sim.Engine) error { return e.SetFault(sim.Fault{Kind: sim.FaultRST}) },
		"stuck":  func(e *sim.Engine) error { e.Freeze(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var urls [4]string
			r := newRig(t, rigOptions{decode: 4, router: twoServers(t, &urls), config: func(c *proxy.Config) {
				c.Timeouts.FirstEvent = 3 * time.Second // a shorter one gives up ranks that are only late
			}})
			t.Cleanup(r.decode[1].Thaw)
			if err := spoil(r.decode[1]); err != nil {
				t.Fatal(err)
			}
			of := func(metric string, rank int) float64 {
				return r.metric(fmt.Sprintf(`%s{backend="%s"`, metric, urls[rank]))
			}
			r.until(func() bool { return of("xpyd_backend_ejections_total", 1) == 1 }, func(int) {
				r.post("/v1/completions", `{"model":"sim","prompt":"one two three","max_tokens":2}`)
			})
			before := len(r.decode[1].Requests())
			for range 8 {
				if a := r.post("/v1/completions", `{"model":"sim","prompt":"one two three","max_tokens":2}`); a.status != 200 {
					t.Errorf("status %d: %s", a.status, a.body)
				}
			}
			if n := len(r.decode[1].Requests()); n != before {
				t.Errorf("the ejected rank had %d more requests", n-before)
			}
			for rank := range urls {
				if n := of("xpyd_backend_ejections_total", rank); rank != 1 && n != 0 || of("xpyd_backend_up", rank) != 1 {
					t.Errorf("%s: ejected %v times, up %v", urls[rank], n, of("xpyd_backend_up", rank))
				}
			}
		})
	}
}

// A rank that dies takes its server along: all of its ranks are down, and no rank of another server.
func TestADeadRankTakesItsServerDown(t *testing.T) {
	var urls [4]string
	r := newRig(t, rigOptions{decode: 4, router: twoServers(t, &urls)})
	up := func(rank int) bool { return r.metric(fmt.Sprintf(`xpyd_backend_up{backend="%s"`, urls[rank])) == 1 }
	r.await("all up", func() bool { return up(0) && up(1) && up(2) && up(3) })
	r.decode[1].Kill()
	r.await("down", func() bool { return !up(0) && !up(1) })
	for _, c := range forms(prompt, 9) {
		r.expectWhole(c, r.call(c))
	}
	if !up(2) || !up(3) {
		t.Error("a rank of the other server is down")
	}
	if n := served(r.decode); n[0]+n[1] != 0 || n[2] == 0 || n[3] == 0 {
		t.Errorf("ranks served %v", n)
	}
	r.expectNothingHeld()
}
