package netio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
)

// ParseNetworks reads addresses and networks, such as 10.0.0.7 and 10.0.0.0/8. The error text follows
// value.
func ParseNetworks(entries []string) (networks []netip.Prefix, value string, err error) {
	for _, e := range entries {
		network, err := netip.ParsePrefix(e)
		if addr, one := netip.ParseAddr(e); err != nil && one == nil {
			addr = addr.Unmap()
			network, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, e, errors.New("is no address or network; try 10.0.0.7 or 10.0.0.0/8")
		}
		networks = append(networks, network)
	}
	return networks, "", nil
}

// within reports whether one of the networks has the address.
func within(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// The header of the PROXY protocol, version 2: a signature, a byte with version and command, a byte
// with the family of the addresses, and the length of what follows.
const (
	headerSignature = "\r\n\r\n\x00\r\nQUIT\n"
	headerFixed     = len(headerSignature) + 4

	commandLocal = 0x20 // the balancer's own connection, such as a check
	commandProxy = 0x21
	familyTCP4   = 0x11
	familyTCP6   = 0x21
)

var (
	errNoHeader  = errors.New("the connection does not begin with a header of the PROXY protocol, version 2")
	errCutHeader = errors.New("the header of the PROXY protocol did not come whole")
)

// readProxyHeader reads the header and not a byte more. client is the address in it. It is not valid
// if there is none, which is so for connections of the balancer itself. io.EOF means that not a byte
// came.
func readProxyHeader(r io.Reader) (client netip.Addr, err error) {
	var b [512]byte
	if n, err := io.ReadFull(r, b[:headerFixed]); err != nil {
		if n > 0 {
			return client, errNoHeader
		}
		return client, io.EOF
	}
	command, family := b[12], b[13]
	rest := int(binary.BigEndian.Uint16(b[14:16]))
	if string(b[:len(headerSignature)]) != headerSignature || command != commandLocal && command != commandProxy {
		return client, errNoHeader
	}
	n := min(rest, len(b))
	if _, err := io.ReadFull(r, b[:n]); err != nil {
		return client, errCutHeader
	}
	if _, err := io.CopyN(io.Discard, r, int64(rest-n)); err != nil { // fields that say more of the connection
		return client, errCutHeader
	}
	if command == commandLocal {
		return client, nil
	}
	return headerClient(family, b[:n])
}

// headerClient returns the source of the addresses.
func headerClient(family byte, b []byte) (client netip.Addr, err error) {
	size := 0
	switch family {
	case familyTCP4:
		size = 4
	case familyTCP6:
		size = 16
	default: // no address, or that of a local socket
		return client, nil
	}
	if len(b) < 2*size+4 { // two addresses and two ports
		return client, fmt.Errorf("a header of the PROXY protocol is too short for its addresses: %d bytes", len(b))
	}
	client, _ = netip.AddrFromSlice(b[:size])
	return client.Unmap(), nil
}

// rawReader reads the bytes of a socket as they came, before TLS.
type rawReader struct{ s *Socket }

func (r rawReader) Read(p []byte) (int, error) { return r.s.readRaw(p) }

// introduce reads the header of a balancer, and takes the place of the client that it names. It
// reports whether the connection goes on.
func (c *Conn) introduce() bool {
	client, err := readProxyHeader(rawReader{&c.Socket})
	switch {
	case err == nil:
	case errors.Is(err, io.EOF): // balancers look at a port like that
		return false
	default:
		c.ln.terms.TurnedAway("proxy_protocol")
		if c.ln.terms.Unintroduced != nil {
			c.ln.terms.Unintroduced(c.ip, err)
		}
		return false
	}
	if client.IsValid() {
		c.ip = client
	}
	if !c.ln.takePlace(c) {
		c.ln.terms.TurnedAway("per_ip")
		return false
	}
	return true
}
