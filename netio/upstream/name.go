package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxAddresses bounds how many addresses of a name one dial tries. An answer may have a thousand.
	maxAddresses = 8
	// namePause is how long older addresses are used without a new look-up after one that failed. A
	// name server that hangs must not slow every dial.
	namePause = time.Second
	// maxNamedAge bounds the life of a connection to a name. The name may now belong to another
	// engine, while the old one still answers.
	maxNamedAge = 5 * time.Minute
)

// LookUp has the signature of net.Resolver's LookupNetIP.
type LookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)

// name is the name of a backend that is not given as an address. Each dial looks it up, because no TTL
// reaches us. Its last addresses hold until a look-up finds others. It is safe for concurrent use.
type name struct {
	host, port string
	lookUp     LookUp

	mu     sync.Mutex
	known  []netip.Addr // from the last look-up that found any; up to maxAddresses
	works  netip.Addr   // the last one that took a connection
	stale  bool         // none of known took the last dial, so a longer look-up is worth it
	failed time.Time    // when a look-up last found nothing; zero after one that found something
}

// newName returns nil for an address, which is dialled as it is. addr is host:port.
func newName(addr string, l LookUp) *name {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic("BUG: backend address without port: " + addr)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if l == nil {
		l = net.DefaultResolver.LookupNetIP
	}
	return &name{host: host, port: port, lookUp: l}
}

// dial connects to the first address that accepts. All attempts share the dialer's timeout.
func (n *name) dial(ctx context.Context, d *net.Dialer) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	addrs, err := n.addresses(ctx, d.Timeout/4)
	if err != nil {
		return nil, err
	}
	until, _ := ctx.Deadline()
	var failures []error
	for i, a := range addrs {
		one := *d
		one.Timeout = time.Until(until) / time.Duration(len(addrs)-i)
		conn, err := one.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), n.port))
		if err == nil {
			n.mu.Lock()
			n.works, n.stale = a, false
			n.known = n.order(n.known)
			n.mu.Unlock()
			return conn, nil
		}
		failures = append(failures, err)
	}
	n.mu.Lock()
	n.stale = true
	n.mu.Unlock()
	return nil, fmt.Errorf("dial %s: %w", n.host, errors.Join(failures...))
}

// addresses looks the name up and returns where to dial. The address that worked last comes first. If
// there are older addresses to fall back on, it waits no longer than atMost.
func (n *name) addresses(ctx context.Context, atMost time.Duration) ([]netip.Addr, error) {
	n.mu.Lock()
	known, pause := n.known, time.Since(n.failed) < namePause
	if n.stale {
		atMost *= 3
	}
	n.mu.Unlock()
	if known != nil {
		if pause {
			return known, nil
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, atMost)
		defer cancel()
	}
	found, err := n.lookUp(ctx, "ip", n.host)
	if err == nil && len(found) == 0 {
		err = errors.New("no address")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.failed = time.Now()
		if n.known == nil {
			return nil, fmt.Errorf("look up %s: %w", n.host, err)
		}
		return n.known, nil
	}
	n.failed = time.Time{}
	n.known = n.order(found)
	return n.known, nil
}

// order puts the address that worked last to the front and drops those beyond maxAddresses. The result
// is not changed any more. mu is held.
func (n *name) order(found []netip.Addr) []netip.Addr {
	all := make([]netip.Addr, 0, len(found))
	for _, a := range found {
		if a = a.Unmap(); a == n.works {
			all = slices.Insert(all, 0, a)
		} else {
			all = append(all, a)
		}
	}
	return slices.Clip(all[:min(len(all), maxAddresses)])
}

func (u *Client) connectOnce(ctx context.Context) (net.Conn, error) {
	if u.name == nil {
		return u.dialer.DialContext(ctx, "tcp", u.addr)
	}
	return u.name.dial(ctx, &u.dialer)
}

// outlived reports that the connection goes to a name and is older than maxNamedAge.
func (u *Client) outlived(c *conn, now time.Time) bool {
	return u.name != nil && now.Sub(c.born) > maxNamedAge
}
