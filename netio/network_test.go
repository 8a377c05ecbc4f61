package netio

import (
	"net/netip"
	"testing"
)

// One client has all addresses of an IPv6 /64, so they share their bounds.
func TestClientsOfOneNetworkShareTheirPlaces(t *testing.T) {
	for _, c := range []struct {
		a, b string
		one  bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"fe80::1%eth0", "fe80::2%eth0", false}, // neighbours
	} {
		l := &Listener{terms: Terms{PerIP: 1}, count: map[netip.Addr]int{}, conns: map[*Conn]struct{}{}}
		first, second := &Conn{ln: l, ip: netip.MustParseAddr(c.a)}, &Conn{ln: l, ip: netip.MustParseAddr(c.b)}
		if !l.takePlace(first) {
			t.Fatalf("%s got no place", c.a)
		}
		if got := l.takePlace(second); got == c.one {
			t.Errorf("%s beside %s got a place: %t", c.b, c.a, got)
		}
		l.freePlace(first)
		l.freePlace(second)
		if len(l.count) != 0 {
			t.Errorf("%s and %s: %v is still counted", c.a, c.b, l.count)
		}
	}
}
