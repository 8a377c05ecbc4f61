package netio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// header is a header of the PROXY protocol with the given block of addresses and fields.
func header(command, family byte, block []byte) []byte {
	h := append([]byte(headerSignature), command, family)
	return append(binary.BigEndian.AppendUint16(h, uint16(len(block))), block...)
}

// block is the addresses of a connection from ip.
func block(ip, to string) []byte {
	b := append(netip.MustParseAddr(ip).AsSlice(), netip.MustParseAddr(to).AsSlice()...)
	return append(b, 0x9c, 0x40, 0x1f, 0x90)
}

func TestReadProxyHeader(t *testing.T) {
	v4, v6 := block("192.0.2.7", "10.0.0.1"), block("2001:db8::7", "2001:db8::1")
	for name, tt := range map[string]struct {
		wire   []byte
		client string // "" if the header names none
		err    error
	}{
		"TCP4":                {header(commandProxy, familyTCP4, v4), "192.0.2.7", nil},
		"TCP6":                {header(commandProxy, familyTCP6, v6), "2001:db8::7", nil},
		"IPv4 inside IPv6":    {header(commandProxy, familyTCP6, block("::ffff:192.0.2.7", "::1")), "192.0.2.7", nil},
		"further fields":      {header(commandProxy, familyTCP4, append(bytes.Clone(v4), 4, 0, 1, 'x')), "192.0.2.7", nil},
		"many further fields": {header(commandProxy, familyTCP4, append(bytes.Clone(v4), make([]byte, 60<<10)...)), "192.0.2.7", nil},
		"local":               {header(commandLocal, 0, nil), "", nil},
		"local with address":  {header(commandLocal, familyTCP4, v4), "", nil},
		"unknown family":      {header(commandProxy, 0, nil), "", nil},
		"UNIX":                {header(commandProxy, 0x31, make([]byte, 216)), "", nil},
		"nothing":             {nil, "", io.EOF},
		"HTTP":                {[]byte("GET /livez HTTP/1.1\r\n\r\n"), "", errNoHeader},
		"short":               {[]byte("GET"), "", errNoHeader},
		"version 1":           {[]byte("PROXY TCP4 192.0.2.7 10.0.0.1 40000 8080\r\n"), "", errNoHeader},
		"another version":     {header(0x11, familyTCP4, v4), "", errNoHeader},
		"another command":     {header(0x22, familyTCP4, v4), "", errNoHeader},
		"cut":                 {header(commandProxy, familyTCP4, v4)[:headerFixed+3], "", errCutHeader},
		"cut fields":          {header(commandProxy, familyTCP4, append(bytes.Clone(v4), make([]byte, 1000)...))[:600], "", errCutHeader},
	} {
		const after = "GET / HTTP/1.1"
		wire := bytes.NewReader(tt.wire)
		if tt.err == nil {
			wire = bytes.NewReader(append(bytes.Clone(tt.wire), after...))
		}
		client, err := readProxyHeader(wire)
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", name, err, tt.err)
		}
		if (tt.client != "") != client.IsValid() || client.IsValid() && client.String() != tt.client {
			t.Errorf("%s: the client is %v, want %q", name, client, tt.client)
		}
		if rest, _ := io.ReadAll(wire); tt.err == nil && string(rest) != after {
			t.Errorf("%s: what follows begins with %.20q", name, rest)
		}
	}
	if _, err := readProxyHeader(bytes.NewReader(header(commandProxy, familyTCP4, v4[:11]))); err == nil || !strings.Contains(err.Error(), "too short") {
		t.Errorf("addresses that are too short: %v", err)
	}
}

func TestParseNetworks(t *testing.T) {
	got, _, err := ParseNetworks([]string{"10.0.0.0/8", "192.0.2.7", "::1", "::ffff:192.0.2.8"})
	if err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]bool{"10.1.2.3": true, "11.1.2.3": false, "192.0.2.7": true, "192.0.2.8": true, "192.0.2.9": false, "::1": true, "::2": false} {
		if within(got, netip.MustParseAddr(ip)) != want {
			t.Errorf("%s is in %v: %v", ip, got, !want)
		}
	}
	for _, bad := range []string{"", "10.0.0.0/33", "localhost", "10.0.0.1:80"} {
		if _, value, err := ParseNetworks([]string{"10.0.0.1", bad}); err == nil || value != bad {
			t.Errorf("%q: %v about %q", bad, err, value)
		}
	}
}

// balancedPort is a listener whose clients come through a balancer on this machine.
func balancedPort(t *testing.T, terms Terms) *Listener {
	t.Helper()
	port, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if terms.Balancers == nil {
		terms.Balancers, _, _ = ParseNetworks([]string{"127.0.0.0/8"})
	}
	l, err := NewListener(port, terms)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// connect dials, sends and returns both ends.
func connect(t *testing.T, l *Listener, send []byte) (client net.Conn, conn *Conn) {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.Write(send); err != nil {
		t.Fatal(err)
	}
	got, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = got.Close() })
	_ = got.SetReadDeadline(time.Now().Add(10 * time.Second))
	return client, got.(*Conn)
}

// The connections of one client count together, whichever balancer they come through, and those of
// the balancer itself do not count against its clients.
func TestBalancedClientsHaveTheirOwnPlaces(t *testing.T) {
	var reasons []string
	l := balancedPort(t, Terms{PerIP: 1, TurnedAway: func(reason string) { reasons = append(reasons, reason) }})
	from := func(ip string) (*Conn, error) {
		_, c := connect(t, l, append(header(commandProxy, familyTCP4, block(ip, "10.0.0.1")), "GET "...))
		n, err := c.Read(make([]byte, 16))
		if err == nil && n != len("GET ") {
			t.Errorf("%d bytes after the header, want 4", n)
		}
		return c, err
	}
	first, err := from("192.0.2.7")
	if err != nil || first.IP().String() != "192.0.2.7" {
		t.Fatalf("the first: %v, %v", first.IP(), err)
	}
	if _, err := from("192.0.2.8"); err != nil {
		t.Fatalf("another client: %v", err)
	}
	if second, err := from("192.0.2.7"); err != io.EOF {
		t.Fatalf("a second connection of one client: %v, want EOF", err)
	} else if _ = second.Close(); len(reasons) != 1 || reasons[0] != "per_ip" {
		t.Errorf("turned away for %q", reasons)
	}
	_ = first.Close()
	if _, err := from("192.0.2.7"); err != nil {
		t.Errorf("after the first has left: %v", err)
	}
	_, own := connect(t, l, append(header(commandLocal, 0, nil), "GET "...))
	if _, err := own.Read(make([]byte, 16)); err != nil || own.IP().String() != "127.0.0.1" {
		t.Errorf("the balancer's own: %v, %v", own.IP(), err)
	}
}

// A connection that was closed before its header came takes no place.
func TestClosedBalancedConnectionTakesNoPlace(t *testing.T) {
	l := balancedPort(t, Terms{PerIP: 1})
	_, c := connect(t, l, header(commandProxy, familyTCP4, block("192.0.2.7", "10.0.0.1")))
	l.freePlace(c)
	if l.takePlace(c) || len(l.count) != 0 {
		t.Errorf("it has taken a place: %v", l.count)
	}
}

// A balancer that sends no header is not taken for a client. Nobody else can send one.
func TestHeaderIsForBalancersAlone(t *testing.T) {
	var reasons []string
	var why error
	terms := Terms{TurnedAway: func(reason string) { reasons = append(reasons, reason) }, Unintroduced: func(_ netip.Addr, err error) { why = err }}
	l := balancedPort(t, terms)
	_, c := connect(t, l, []byte("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"))
	if _, err := c.Read(make([]byte, 100)); err != io.EOF || !errors.Is(why, errNoHeader) || len(reasons) != 1 || reasons[0] != "proxy_protocol" {
		t.Errorf("without a header: %v, %v, %q", err, why, reasons)
	}
	client, c := connect(t, l, nil)
	_ = client.Close()
	if _, err := c.Read(make([]byte, 100)); err != io.EOF || len(reasons) != 1 {
		t.Errorf("a look at the port: %v, %q", err, reasons)
	}
	terms.Balancers, _, _ = ParseNetworks([]string{"192.0.2.0/24"})
	_, c = connect(t, balancedPort(t, terms), header(commandProxy, familyTCP4, block("192.0.2.7", "10.0.0.1")))
	got := make([]byte, 100)
	if n, err := c.Read(got); err != nil || !c.Misframed() || c.IP().String() != "127.0.0.1" {
		t.Errorf("a header of somebody else: %q, %v, refused %v, from %v", got[:n], err, c.Misframed(), c.IP())
	}
}
