package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"xpyd/cmd/config"
	"xpyd/netio"
)

// port is an open listener and the address to hand it over with. That is the address in the
// configuration, or "" if systemd chose it.
type port struct {
	net.Listener
	name       string
	configured string
}

// openPorts takes the data and the admin port from h, or opens them. The data port comes first. The
// admin port is opened only if there is one.
func (h *Inheritance) openPorts(cfg config.Config) ([]port, error) {
	data, err := h.open(dataSocket, cfg.Listen, netio.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w (flag --listen, XPYD_LISTEN)", err)
	}
	admin, err := h.open(adminSocket, cfg.Admin, listenAdmin)
	if err != nil {
		_ = data.Close()
		return nil, fmt.Errorf("admin: %w (flag --admin, XPYD_ADMIN)", err)
	}
	if admin.Listener == nil {
		return []port{data}, nil
	}
	if admin.configured == "" { // the check of the configuration knew another address
		if err := cfg.CheckAdmin(admin.Addr().String()); err != nil {
			return nil, errors.Join(config.UsageError{Err: err}, data.Close(), admin.Close())
		}
	}
	return []port{data, admin}, nil
}

func (h *Inheritance) open(name, addr string, listen func(string) (net.Listener, error)) (port, error) {
	if s, ok := h.take(name, addr); ok {
		ln, err := netio.Inherit(s.file)
		_ = s.file.Close()
		return port{ln, name, s.addr}, err
	}
	ln, err := listen(addr)
	if h.Handed() && errors.Is(err, netio.ErrInUse) {
		err = fmt.Errorf("%w. If the process that hands over has it, restart instead: both cannot be open, and neither can :PORT beside HOST:PORT", err)
	}
	return port{ln, name, addr}, err
}

// listenAdmin opens nothing for the empty address.
func listenAdmin(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // netio.Inherit needs it
	ln, err := plain.Listen(context.Background(), "tcp", addr)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("listen: %s %w", addr, netio.ErrInUse)
	}
	return ln, err
}
