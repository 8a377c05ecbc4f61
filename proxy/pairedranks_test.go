package proxy_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/sim"
)

// neighbours are two free addresses of loopback with ports that follow each other.
func neighbours(t *testing.T) [2]string {
	t.Helper()
	for range 50 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		_ = l.Close()
		if err == nil {
			_ = next.Close()
			return [2]string{fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", port+1)}
		}
	}
	t.Fatal("no two free ports that follow each other")
	return [2]string{}
}

// rankedPair is a prefill and a decode server of two ranks each, of a connector whose decode leg names the rank.
func rankedPair(t *testing.T, d kvparams.Dialect) *rig {
	t.Helper()
	sockets, prefills := neighbours(t), 0
	engine := func(o *sim.Options) {
		if o.Role == sim.RolePrefill && d.Name() == "offloading-p2p" {
			o.SideChannel = sockets[prefills]
			prefills++
		}
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

// eachRanked runs a test with each connector whose decode leg names a rank of a prefill engine.
func eachRanked(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	names := func(d kvparams.Dialect) bool {
		p, ok := d.(kvparams.Pairing)
		return ok && p.Ranks()
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
