package daemon

import (
	"errors"
	"net"
	"strings"
	"testing"

	"xpyd/cmd/config"
	"xpyd/netio"
)

// With LISTEN_PID of another process, the variables were not meant for this one.
func TestSocketsOfAnotherProcessAreLeftAlone(t *testing.T) {
	var h Inheritance
	if err := h.fromSystemd("1", "2", "data:admin"); err != nil || len(h.sockets) != 0 {
		t.Errorf("%v, %d sockets", err, len(h.sockets))
	}
}

// systemd's socket of the admin port may let other machines in where the address in the configuration
// does not. It needs a token too.
func TestInheritedAdminPortNeedsAToken(t *testing.T) {
	open := func(addr, token string) error {
		ln, err := netio.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		file, err := ln.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		h := Inheritance{sockets: []inheritedSocket{{adminSocket, "", file}}}
		cfg := config.Default()
		cfg.Listen, cfg.AdminToken = "127.0.0.1:0", token
		ports, err := h.openPorts(cfg)
		for _, p := range ports {
			_ = p.Close()
		}
		return err
	}
	var usage config.UsageError
	if err := open("0.0.0.0:0", ""); !errors.As(err, &usage) || !strings.Contains(err.Error(), "admin_token") {
		t.Errorf("open to all without a token: %v", err)
	}
	for addr, token := range map[string]string{"0.0.0.0:0": "t", "127.0.0.1:0": ""} {
		if err := open(addr, token); err != nil {
			t.Errorf("%s, token %q: %v", addr, token, err)
		}
	}
}
