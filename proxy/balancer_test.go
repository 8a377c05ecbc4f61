package proxy_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"xpyd/netio/tlsconf/tlstest"
	"xpyd/proxy"
)

// write sends what a client writes, and returns the connection.
func write(conn net.Conn, text string) net.Conn {
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, text)
	return conn
}

// proxyHeader is a header of the PROXY protocol, version 2, for a connection from that address.
func proxyHeader(client string) string {
	ip, family := netip.MustParseAddr(client), byte(0x11)
	to := []byte{127, 0, 0, 1}
	if ip.Is6() {
		family, to = 0x21, net.IPv6loopback
	}
	h := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21"), family)
	h = binary.BigEndian.AppendUint16(h, uint16(2*len(to)+4+4))
	h = append(append(h, ip.AsSlice()...), to...)
	return string(append(h, 0x9c, 0x40, 0x1f, 0x90, 0x04, 0, 1, 0)) // with a field of one byte
}

// balanced has the options of a rig whose clients come through a balancer on this machine.
func balanced(o rigOptions) rigOptions {
	o.config = then(o.config, func(c *proxy.Config) { c.ProxyProtocol.From = []string{"127.0.0.0/8"} })
	before := o.before
	o.before = func(r *rig) {
		if before != nil {
			before(r)
		}
		r.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err == nil {
				_, err = io.WriteString(conn, proxyHeader("192.0.2.7"))
			}
			return conn, err
		}
	}
	return o
}

// The address in a balancer's header is that of the client, in the log and for limits. TLS follows the
// header.
func TestClientsBehindABalancer(t *testing.T) {
	together(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			o := rigOptions{}
			if secure {
				o = secured(t, tlstest.NewCA(t), o)
			}
			r := newRig(t, balanced(o))
			for _, c := range forms(prompt, 3) {
				r.expectWhole(c, r.call(c))
			}
			r.client.CloseIdleConnections()
			r.await("4 lines", func() bool { return strings.Count(r.logs.String(), `"client":"192.0.2.7"`) == 4 })
			if strings.Contains(r.logs.String(), `"client":"127.0.0.1"`) {
				t.Errorf("the balancer is logged as a client:\n%s", r.logs)
			}
		})
	}
}

// A balancer that sends no header gets no answer, and the log says why.
func TestBalancerWithoutHeader(t *testing.T) {
	r := newRig(t, balanced(rigOptions{}))
	b, err := io.ReadAll(write(r.dialRaw(), raw(forms(prompt, 2)[0], "x")))
	if len(b) > 0 {
		t.Errorf("answered %q, %v", b, err)
	}
	r.await("counted", func() bool { return r.metric(`xpyd_connections_turned_away_total{reason="proxy_protocol"}`) == 1 })
	r.await("logged", func() bool { return strings.Contains(r.logs.String(), "see proxy_protocol.from") })
}

// Whoever is no balancer cannot name another address.
func TestHeaderOfAClientIsRefused(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.ProxyProtocol.From = []string{"192.0.2.0/24"} }})
	_, a := r.read10(write(r.dialRaw(), proxyHeader("192.0.2.7")+raw(forms(prompt, 2)[0], "x")))
	if a.status != 400 {
		t.Errorf("%d %s, want 400", a.status, a.body)
	}
	for _, c := range forms(prompt, 2) {
		r.expectWhole(c, r.call(c))
	}
}

// A balancer that stands still in its header is given up, as any client is.
func TestHeaderThatStopsIsGivenUp(t *testing.T) {
	r := newRig(t, balanced(rigOptions{config: func(c *proxy.Config) { c.Timeouts.Header = 200 * time.Millisecond }}))
	conn := write(r.dialRaw(), proxyHeader("192.0.2.7")[:20])
	if b, err := io.ReadAll(conn); len(b) > 0 {
		t.Errorf("answered %q, %v", b, err)
	}
	r.await("counted", func() bool { return r.metric(`xpyd_connections_turned_away_total{reason="proxy_protocol"}`) == 1 })
}
