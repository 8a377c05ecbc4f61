package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/netio/upstream/nametest"
)

const (
	dnsOK       = 0
	dnsServfail = 2
	dnsNXDomain = 3
)

// inSome looks ten times at most until nothing is wrong. A look-up has less than a second, so a machine
// that stalls spoils one or two looks. What is wrong in each is the code's fault.
func inSome(t *testing.T, look func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = look(); err == nil {
			return
		}
	}
	t.Errorf("each of ten times, the last: %v", err)
}

// twoHosts listens on two loopback addresses with the same port.
func twoHosts(t *testing.T) (port string, hosts []netip.Addr) {
	t.Helper()
	hosts = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	port = "0"
	for _, h := range hosts {
		ln, err := net.Listen("tcp", net.JoinHostPort(h.String(), port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		_, port, _ = net.SplitHostPort(ln.Addr().String())
	}
	return port, hosts
}

// dialName returns the address that a dial reached, and how long it took.
func dialName(n *name) (reached string, took time.Duration, err error) {
	start := time.Now()
	c, err := n.dial(context.Background(), &net.Dialer{Timeout: time.Second})
	took = time.Since(start)
	if err != nil {
		return "", took, err
	}
	reached, _, _ = net.SplitHostPort(c.RemoteAddr().String())
	_ = c.Close()
	return reached, took, nil
}

func thousand(more ...netip.Addr) []netip.Addr {
	var all []netip.Addr
	for i := range 1000 - len(more) {
		all = append(all, netip.AddrFrom4([4]byte{127, 9, byte(i >> 8), byte(i)}))
	}
	return append(all, more...)
}

// T24: an answer of a name server must not lose a backend that was there a moment ago.
func TestNamesOfBackends(t *testing.T) {
	port, hosts := twoHosts(t)
	first := nametest.Answer{Addrs: hosts[:1]}
	for _, tc := range []struct {
		name    string
		before  *nametest.Answer // the answer to an earlier dial that went well
		now     nametest.Answer
		reaches string // "" if the dial fails
		within  time.Duration
	}{
		{"found", nil, first, "127.0.0.1", 0},
		{"no such name, never known", nil, nametest.Answer{Code: dnsNXDomain}, "", 0},
		{"no address, never known", nil, nametest.Answer{Code: dnsOK}, "", 0},
		{"no such name any more", &first, nametest.Answer{Code: dnsNXDomain}, "127.0.0.1", 0},
		{"server failure", &first, nametest.Answer{Code: dnsServfail}, "127.0.0.1", 0},
		{"no address any more", &first, nametest.Answer{Code: dnsOK}, "127.0.0.1", 0},
		{"silence", &first, nametest.Answer{Silent: true}, "127.0.0.1", 600 * time.Millisecond},
		{"silence, never known", nil, nametest.Answer{Silent: true}, "", 1200 * time.Millisecond},
		{"changed, TTL 0", &first, nametest.Answer{Addrs: hosts[1:]}, "127.0.0.2", 0},
		{"one more, the old one stays", &first, nametest.Answer{Addrs: []netip.Addr{hosts[1], hosts[0]}}, "127.0.0.1", 0},
		{"the first of two is dead", nil, nametest.Answer{Addrs: []netip.Addr{netip.MustParseAddr("127.9.9.9"), hosts[1]}}, "127.0.0.2", 0},
		{"a thousand, none alive", nil, nametest.Answer{Addrs: thousand()}, "", 0},
		{"a thousand, the one that worked is the last", &first, nametest.Answer{Addrs: thousand(hosts[0])}, "127.0.0.1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ns := nametest.New(t, tc.now)
			inSome(t, func() error {
				n := newName(net.JoinHostPort("engine.test", port), ns.Lookup)
				if tc.before != nil {
					ns.Set(*tc.before)
					if _, _, err := dialName(n); err != nil {
						return err
					}
					ns.Set(tc.now)
				}
				asked := ns.Asked.Load()
				reached, took, err := dialName(n)
				switch {
				case reached != tc.reaches || (err == nil) != (tc.reaches != ""):
					return fmt.Errorf("reached %q (%w), want %q", reached, err, tc.reaches)
				case err != nil && !strings.Contains(err.Error(), "engine.test"):
					return fmt.Errorf("the error does not name the backend: %w", err)
				case tc.within > 0 && took > tc.within:
					return fmt.Errorf("took %v, want no more than %v", took, tc.within)
				case ns.Asked.Load() == asked:
					return errors.New("not looked up at this dial")
				case err != nil && strings.Count(err.Error(), "connect: ") > maxAddresses:
					return fmt.Errorf("dialled more than %d addresses: %w", maxAddresses, err)
				}
				return nil
			})
		})
	}
}

// A name server that hangs delays one dial a second, not every dial. The pause ends by
// itself on a machine that stalls, so one try in which it holds is enough.
func TestNameServerThatHangsIsNotAskedAtEachDial(t *testing.T) {
	port, hosts := twoHosts(t)
	var asked atomic.Int64
	var hangs atomic.Bool
	n := newName(net.JoinHostPort("engine.test", port), func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		asked.Add(1)
		if hangs.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return hosts[:1], nil
	})
	inSome(t, func() error { _, _, err := dialName(n); return err })
	hangs.Store(true)
	inSome(t, func() error {
		n.mu.Lock()
		n.failed = time.Time{} // the pause of the last try is over
		n.mu.Unlock()
		began := asked.Load()
		for range 5 {
			if reached, _, err := dialName(n); reached != "127.0.0.1" {
				return fmt.Errorf("reached %q: %w", reached, err)
			}
		}
		if n := asked.Load() - began; n != 1 {
			return fmt.Errorf("asked %d times by five dials in a row, want once", n)
		}
		return nil
	})
	hosts[0] = hosts[1]
	hangs.Store(false)
	inSome(t, func() error {
		n.mu.Lock()
		n.failed = time.Now().Add(-namePause) // the pause is over
		n.mu.Unlock()
		if reached, _, err := dialName(n); reached != "127.0.0.2" {
			return fmt.Errorf("after the pause: %q %w, want the new address", reached, err)
		}
		return nil
	})
}

func TestAddressesAreNotLookedUp(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:80", "[::1]:80", "[fe80::1%lo]:80"} {
		if n := newName(addr, nil); n != nil {
			t.Errorf("%s is taken for a name", addr)
		}
	}
}

// A connection to a name ends after a while. So xpyd follows a name that moved, although its former
// engine still answers.
func TestConnectionToANameIsNotKeptForEver(t *testing.T) {
	for _, tc := range []struct {
		name  string
		named bool
		age   time.Duration
		kept  int
	}{
		{"name, young", true, maxNamedAge - time.Second, 1},
		{"name, old", true, maxNamedAge + time.Second, 0},
		{"address, old", false, maxNamedAge + time.Second, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t, func(int) (string, bool) { return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false })
			u := s.client()
			if tc.named {
				_, port, _ := net.SplitHostPort(u.addr)
				u.name = newName("engine.test:"+port, nametest.New(t, nametest.Answer{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}).Lookup)
			}
			x, _, err := exchangeOnce(u, post("{}"))
			if err != nil {
				t.Fatal(err)
			}
			x.conn.born = time.Now().Add(-tc.age)
			x.Finish()
			if len(u.idle) != tc.kept {
				t.Errorf("%d connections in the pool, want %d", len(u.idle), tc.kept)
			}
		})
	}
}

// The engine moves, and the name server takes longer than a look-up may take while an address is
// known.
func TestMovedEngineIsFoundByASlowNameServer(t *testing.T) {
	var now atomic.Pointer[netip.Addr]
	now.Store(&netip.Addr{})
	slow := func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		select {
		case <-time.After(300 * time.Millisecond):
			return []netip.Addr{*now.Load()}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	listen := func(addr string) net.Listener {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		a := ln.Addr().(*net.TCPAddr).AddrPort().Addr()
		now.Store(&a)
		return ln
	}
	ln := listen("127.0.0.1:0")
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	n := newName(net.JoinHostPort("engine.test", port), slow)
	inSome(t, func() error { _, _, err := dialName(n); return err })
	_ = ln.Close()
	ln = listen("127.0.0.2:" + port)
	t.Cleanup(func() { _ = ln.Close() })
	var err error
	for started := time.Now(); time.Since(started) < 30*time.Second; time.Sleep(50 * time.Millisecond) {
		if _, _, err = dialName(n); err == nil {
			return
		}
	}
	t.Errorf("not found in 30 s: %v", err)
}

func TestAddressThatWorkedIsDialledFirstWhileNamesFail(t *testing.T) {
	port, hosts := twoHosts(t)
	ns := nametest.New(t, nametest.Answer{Addrs: []netip.Addr{netip.MustParseAddr("127.9.9.9"), hosts[1]}})
	n := newName(net.JoinHostPort("engine.test", port), ns.Lookup)
	inSome(t, func() error {
		if got, _, err := dialName(n); got != hosts[1].String() {
			return fmt.Errorf("reached %q: %w", got, err)
		}
		return nil
	})
	ns.Set(nametest.Answer{Code: dnsServfail})
	if addrs, err := n.addresses(context.Background(), time.Second); err != nil || addrs[0] != hosts[1] {
		t.Errorf("%v %v, want the one that worked first", addrs, err)
	}
}

// A dead engine has two addresses, and on a host without IPv6 one of them cannot even be tried.
func TestDeadEngineIsNotOurFault(t *testing.T) {
	n := newName("engine.test:1", func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")}, nil
	})
	for name, tc := range map[string]struct {
		six, four error
		ours      bool
	}{
		"no IPv6 here, refused": {unix.EADDRNOTAVAIL, unix.ECONNREFUSED, false},
		"no IPv6 here, alone":   {unix.EADDRNOTAVAIL, unix.EADDRNOTAVAIL, false},
		"half starved":          {unix.EMFILE, unix.ECONNREFUSED, false},
		"starved":               {unix.EMFILE, unix.EMFILE, true},
		"no epoll watch left":   {unix.ENOSPC, unix.ENOSPC, true},
	} {
		d := net.Dialer{Timeout: time.Second, Control: func(network, _ string, _ syscall.RawConn) error {
			if strings.HasSuffix(network, "6") {
				return tc.six
			}
			return tc.four
		}}
		if _, err := n.dial(context.Background(), &d); err == nil || IsLocal(err) != tc.ours {
			t.Errorf("%s: %v counts as ours: %v", name, err, IsLocal(err))
		}
	}
}
