package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"

	"xpyd/router"
)

// anyHost reports that a port on the host is open on all addresses of the machine.
func anyHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// samePort reports that one machine cannot open both addresses.
func samePort(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return portA == portB && portA != "0" && (hostA == hostB || anyHost(hostA) || anyHost(hostB))
}

// engineHost returns the host of an engine, in one form for this machine, its port, and its path there.
func engineHost(base string) (host, port, path string) {
	u, err := url.Parse(base)
	if err != nil {
		return "", "", ""
	}
	if host = u.Hostname(); host == "localhost" || host == "::1" {
		host = "127.0.0.1"
	}
	return host, u.Port(), u.Path
}

// checkOwnPort refuses the data port as an engine: a request would come back to xpyd until no connection is left.
func (c *Config) checkOwnPort() error {
	listen, port, _ := net.SplitHostPort(c.Listen)
	if port == "0" {
		return nil
	}
	for _, e := range c.Router.Entries() {
		base, _ := router.SplitRank(e.URL)
		host, at, _ := engineHost(base)
		if at == port && (host == listen || listen == "localhost" && host == "127.0.0.1" || anyHost(listen) && ofThisMachine(host)) {
			return invalid(listOf(e.Role), e.URL, fmt.Sprintf("is xpyd's own data port (listen %q), so requests would come back to xpyd; give the engine's port, or another listen", c.Listen))
		}
	}
	return nil
}

// ofThisMachine reports that a host is an address of this machine.
func ofThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	own, _ := net.InterfaceAddrs()
	return ip.IsLoopback() || ip.IsUnspecified() || slices.ContainsFunc(own, func(a net.Addr) bool {
		n, err := netip.ParsePrefix(a.String())
		return err == nil && n.Addr().Unmap() == ip.Unmap()
	})
}

// twoNames warns of an engine that stands in the pools under two names. Each would have its own load and caps, and in
// prefill and decode it would be told to pull blocks from itself.
func twoNames(r router.Config) (found []string) {
	names := map[string]string{}
	for _, e := range r.Entries() {
		base, _ := router.SplitRank(e.URL)
		host, port, path := engineHost(base)
		at := net.JoinHostPort(host, port) + path
		if other, ok := names[at]; ok && other != base {
			found = append(found, fmt.Sprintf("prefill, decode, engines and encode: %q and %q are one engine under two names; keep one", other, base))
			continue
		}
		names[at] = base
	}
	return found
}
