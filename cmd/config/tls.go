package config

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"xpyd/netio/tlsconf"
)

// readTLSFiles checks the files of TLS. Whoever serves reads them again, since they may change.
func (c *Config) readTLSFiles(open opener, credentials string) error {
	read := func(path string) ([]byte, error) {
		file := open(path)
		if file.err == nil && !file.Mode.IsRegular() {
			return nil, errors.New("is no regular file; give one, because it is read more than once")
		}
		return file.Text, file.err
	}
	set, err := tlsconf.Open(c.TLS, c.AdminTLS, c.BackendTLS, read)
	var unread unreadError
	var fault *tlsconf.Fault
	if errors.As(err, &unread) && errors.As(err, &fault) {
		return fmt.Errorf("%s: %q %w", fault.Key, fault.Value, unread)
	}
	if errors.As(err, &fault) {
		return invalid(fault.Key, fault.Value, fault.Fix)
	}
	if err != nil {
		return err
	}
	for _, used := range []struct {
		section   string
		source    *tlsconf.Source
		cert, key string
	}{
		{"tls", set.Data, c.TLS.Cert, c.TLS.Key},
		{"admin_tls", set.Admin, c.AdminTLS.Cert, c.AdminTLS.Key},
		{"backend_tls", set.Backends, c.BackendTLS.Cert, c.BackendTLS.Key},
	} {
		if used.cert == "" {
			continue
		}
		if doubt := used.source.Doubt(time.Now()); doubt != "" {
			c.noticed = append(c.noticed, invalid(used.section+".cert", used.cert, doubt).Error())
		}
		if file := open(used.key); file.err == nil && openTo(used.key, file, credentials)&^0o040 != 0 {
			c.noticed = append(c.noticed, invalid(used.section+".key", used.key, fmt.Sprintf("may be read by others (mode %04o); run chmod 640 %s", file.Mode.Perm(), used.key)).Error())
		}
	}
	return nil
}

// CheckAdmin wants a token or client certificates where other machines reach the admin port at addr. That is Admin,
// unless systemd opened the port; it is empty if there is none.
func (c *Config) CheckAdmin(addr string) error {
	if addr == "" || loopback(addr) || c.AdminToken != "" || len(c.AdminTokens) > 0 || c.AdminTLS.ClientCA != "" {
		return nil
	}
	return invalid("admin", addr, "lets other machines in, and there is neither admin_token nor admin_tls.client_ca; set admin_token_file to a file with a token, or give a loopback address, such as 127.0.0.1:8081")
}

// loopback reports that only this machine reaches the address.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// openDoor warns of a data port that everybody can use and that encrypts nothing.
func openDoor(c Config) []string {
	if loopback(c.Listen) || len(c.APIKeys)+len(c.Keys) > 0 || c.TLS.On() {
		return nil
	}
	return []string{invalid("listen", c.Listen, "lets other machines in, without a key and without TLS; set api_key_file or tls.cert, or give a loopback address, such as 127.0.0.1:8080").Error()}
}

// clearSecrets warns of a token that others on the way could read.
func clearSecrets(c Config) []string {
	if c.Admin == "" || loopback(c.Admin) || c.AdminTLS.On() {
		return nil
	}
	return []string{invalid("admin", c.Admin, "takes admin_token over plain HTTP from other machines; set admin_tls.cert and admin_tls.key").Error()}
}

// openProfiles warns of profiles that other machines can take. The admin port there has a guard, and this tells
// what its holders get beside metrics.
func openProfiles(c Config) []string {
	if !c.Pprof || c.Admin == "" || loopback(c.Admin) {
		return nil
	}
	guard := "admin_token"
	if c.AdminToken == "" && len(c.AdminTokens) == 0 {
		guard = "a certificate of admin_tls.client_ca"
	}
	return []string{invalid("pprof", "true", fmt.Sprintf("lets whoever has %s take profiles from other machines through admin %q; they tell file names, timing and, of the heap, prompts; leave pprof off, or give admin a loopback address, such as 127.0.0.1:8081", guard, c.Admin)).Error()}
}

// idleTLS warns of files for https:// backends where there are none.
func idleTLS(c Config) []string {
	for _, e := range c.Router.Entries() {
		if strings.HasPrefix(e.URL, "https://") {
			return nil
		}
	}
	return idleKeys(c, []string{"backend_tls.ca", "backend_tls.cert", "backend_tls.key", "backend_tls.server_name", "timeouts.handshake"}, "no backend has an https:// URL")
}
