package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/sim"
)

// neighbours are two free addresses of loopback with ports that follow each other. They lie below those that Linux gives to
// whoever asks for any, so nobody else gets them meanwhile.
func neighbours(t *testing.T) [2]string {
	t.Helper()
	for range 50 {
		port := 20_000 + rand.N(12_000)
		both := [2]string{fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", port+1)}
		l, err := net.Listen("tcp", both[0])
		if err != nil {
			continue
		}
		next, err := net.Listen("tcp", both[1])
		_ = l.Close()
		if err == nil {
			_ = next.Close()
			return both
		}
	}
	t.Fatal("no two free ports that follow each other")
	return [2]string{}
}

// rankedPair is a prefill and a decode server of two ranks each, of a connector one of whose legs names the rank of the other.
func rankedPair(t *testing.T, d kvparams.Dialect) *rig {
	t.Helper()
	sockets, started := map[sim.Role][2]string{sim.RolePrefill: neighbours(t), sim.RoleDecode: neighbours(t)}, map[sim.Role]int{}
	engine := func(o *sim.Options) {
		rank := started[o.Role]
		if started[o.Role]++; sim.Connector(d.Name()).Neighbours(o.Role) {
			o.SideChannel = sockets[o.Role][rank]
		}
		o.Parallel.Rank, o.Parallel.Ranks = rank, 2
	}
	return newRig(t, rigOptions{prefill: 2, decode: 2, dialect: d, engine: engine, router: func(c *router.Config) {
		inTurn(c)
		for _, pool := range []*[]router.Entry{&c.Prefill, &c.Decode} {
			var urls []string
			var ports []int
			for _, e := range *pool {
				urls, ports = append(urls, e.URL), append(ports, e.Bootstrap)
			}
			front, err := sim.StartRanks(urls...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = front.Close() })
			port := ports[0]
			if d.Name() == "mooncake" && port > 0 {
				if port, err = front.JoinBootstraps("127.0.0.1:0", ports...); err != nil {
					t.Fatal(err)
				}
			}
			*pool = nil
			for n := range urls {
				entry := fmt.Sprintf("%s@%d", front.URL(), n)
				if port > 0 {
					entry += fmt.Sprintf(" bootstrap=%d", port)
				}
				*pool = append(*pool, router.MustEntries(entry)...)
			}
		}
	}})
}

// eachRanked runs a test with each connector one of whose legs names a rank of the other engine.
func eachRanked(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	names := func(d kvparams.Dialect) bool {
		_, pairs := d.(kvparams.Pairing)
		_, directed := d.(kvparams.Directed)
		return pairs || directed
	}
	eachConnectorThat(t, names, func(t *testing.T, d kvparams.Dialect) { test(t, rankedPair(t, d)) })
}

func TestPairedRanksMoveKV(t *testing.T) {
	eachRanked(t, func(t *testing.T, r *rig) {
		for i := range 8 {
			c := forms(fmt.Sprint(i, " ", prompt), 9)[i%4]
			a := r.call(c)
			r.expectWhole(c, a)
			if !strings.HasPrefix(pathOf(a), "disaggregated") {
				t.Errorf("%s went %s", c.name(), pathOf(a))
			}
			r.await("moved", func() bool { return r.moved() == i+1 })
		}
		for _, pool := range [][]*sim.Engine{r.prefill, r.decode} {
			r.await("4 requests on each rank", func() bool { n := served(pool); return n[0] == 4 && n[1] == 4 })
		}
		r.expectNothingHeld()
	})
}

// When one rank of a server has died, the requests go on.
func TestPairedRanksOutliveARank(t *testing.T) {
	eachRanked(t, func(t *testing.T, r *rig) {
		c := forms(prompt+"[[prefill-0:kill]]", 5)[0]
		r.expectWhole(c, r.call(c))
		for i := range 4 {
			c := forms(fmt.Sprint(i, " ", prompt), 5)[0]
			r.expectWhole(c, r.call(c))
		}
	})
}
