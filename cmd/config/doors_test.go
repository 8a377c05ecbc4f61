package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"xpyd/netio/tlsconf/tlstest"
)

// Others than this machine need a token for the admin port, or a certificate.
func TestAdminPortForOthersNeedsAToken(t *testing.T) {
	ca := tlstest.NewCA(t)
	pair := ca.Local("xpyd")
	secured := []string{"--admin-tls-cert", pair.Cert, "--admin-tls-key", pair.Key}
	for addr, refused := range map[string]bool{
		"0.0.0.0:8081": true, ":8081": true, "[::]:8081": true, "10.0.0.9:8081": true, "admin.example:8081": true,
		"127.0.0.1:8081": false, "127.9.0.1:8081": false, "[::1]:8081": false, "localhost:8081": false, "": false,
	} {
		args := append([]string{"--listen=127.0.0.1:8080", "--admin", addr}, decodeFlag...)
		if _, err := load(t, args, nil); (err != nil) != refused {
			t.Errorf("%q: %v", addr, err)
		} else if refused {
			checkUsage(t, err, `config: admin: "`+addr+`" lets other machines in, and there is neither admin_token nor admin_tls.client_ca; set admin_token_file to a file with a token, or give a loopback address, such as 127.0.0.1:8081 (flag --admin, XPYD_ADMIN)`)
		}
		for _, enough := range [][]string{{"--admin-token=sesame"}, append(secured, "--admin-tls-client-ca", ca.File)} {
			c, err := load(t, append(enough, args...), nil)
			if err != nil {
				t.Fatalf("%q %q: %v", addr, enough, err)
			}
			clear := refused && len(enough) == 1
			if got := Warnings(c); addr != "" && (len(got) > 0) != clear || clear && !strings.HasPrefix(got[0], `admin: "`+addr+`" takes admin_token over plain HTTP`) {
				t.Errorf("%q %q: %q", addr, enough, got)
			}
		}
	}
}

// Who asks where the admin port is does not stop at a value of something else.
func TestAdminPortBesideWrongValues(t *testing.T) {
	fs := pflag.NewFlagSet("xpyd", pflag.ContinueOnError)
	AddFlags(fs)
	environ := []string{"XPYD_DECODE=http://d:1 weight=many", "XPYD_TIMEOUTS_DIAL=soon", "XPYD_ADMIN=127.0.0.1:9", "XPYD_ADMIN_TLS_CERT=gone.pem"}
	if addr, secured, err := AdminPort(t.Context(), NewFiles(false), fs, environ); err != nil || addr != "127.0.0.1:9" || !secured {
		t.Errorf("%q, %v, %v", addr, secured, err)
	}
}

// Profiles tell file names, timing and, of the heap, prompts. xpyd warns if they leave this machine.
func TestProfilesForEverybodyGetAWarning(t *testing.T) {
	ca := tlstest.NewCA(t)
	pair := ca.Local("xpyd")
	encrypted := []string{"--admin-tls-cert", pair.Cert, "--admin-tls-key", pair.Key}
	guards := map[string][]string{
		"admin_token":                          append([]string{"--admin-token=sesame"}, encrypted...),
		"a certificate of admin_tls.client_ca": append([]string{"--admin-tls-client-ca", ca.File}, encrypted...),
	}
	for addr, warned := range map[string]bool{
		"0.0.0.0:8081": true, ":8081": true, "[::]:8081": true, "10.0.0.9:8081": true, "admin.example:8081": true,
		"127.0.0.1:8081": false, "127.9.0.1:8081": false, "[::1]:8081": false, "localhost:8081": false,
	} {
		for guard, args := range guards {
			for _, pprof := range []bool{true, false} {
				c, err := load(t, slices.Concat([]string{"--listen=127.0.0.1:8080", "--admin", addr, fmt.Sprintf("--pprof=%v", pprof)}, args, decodeFlag), nil)
				if err != nil {
					t.Fatal(err)
				}
				var want []string
				if warned && pprof {
					want = []string{`pprof: "true" lets whoever has ` + guard + ` take profiles from other machines through admin "` + addr + `"; they tell file names, timing and, of the heap, prompts; leave pprof off, or give admin a loopback address, such as 127.0.0.1:8081 (flag --pprof, XPYD_PPROF)`}
				}
				if got := Warnings(c); !slices.Equal(got, want) {
					t.Errorf("%q, pprof %v, %s: %q, want %q", addr, pprof, guard, got, want)
				}
			}
		}
	}
}

// A data port that others reach, with neither a key nor TLS, gets one warning.
func TestOpenDataPortGetsAWarning(t *testing.T) {
	pair := tlstest.NewCA(t).Local("xpyd")
	for _, tc := range []struct {
		args   []string
		warned bool
	}{
		{nil, true},
		{[]string{"--listen=0.0.0.0:8080"}, true},
		{[]string{"--listen=127.0.0.1:8080"}, false},
		{[]string{"--listen=localhost:8080"}, false},
		{[]string{"--api-key=sesame"}, false},
		{[]string{"--tls-cert", pair.Cert, "--tls-key", pair.Key}, false},
	} {
		c, err := load(t, append(tc.args, decodeFlag...), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := Warnings(c)
		if (len(got) == 1) != tc.warned || tc.warned && !strings.Contains(got[0], "lets other machines in, without a key and without TLS") {
			t.Errorf("%q: %q", tc.args, got)
		}
	}
}

// xpyd warns if others than its owner can read a configuration file with keys in it.
func TestKeysInAFileForEverybody(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		mode       os.FileMode
		want       []string // the beginning of each
	}{
		{"client keys", "api_keys: [sesame]\n", 0o644, []string{"api_keys: stands in "}},
		{"both", "api_keys: [sesame]\nbackend_api_key: sesame\n", 0o640, []string{"api_keys: stands in ", "backend_api_key: stands in "}},
		{"closed", "api_keys: [sesame]\nbackend_api_key: sesame\n", 0o600, nil},
		{"none", "api_keys: []\nbackend_api_key: \"\"\n", 0o644, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := writeFile(t, "x.yaml", tc.text, tc.mode)
			args := append([]string{"--config", file, "--listen=127.0.0.1:8080"}, decodeFlag...)
			c, err := load(t, args, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := Warnings(c)
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			for _, w := range got {
				if !strings.Contains(w, "chmod 600 "+file) || !strings.HasSuffix(w, "api_key_file") || strings.Contains(w, "sesame") {
					t.Errorf("%q names no fix, or a key", w)
				}
			}
		})
	}
}
