package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"xpyd/netio/tlsconf/tlstest"
)

// Each file of TLS that cannot be used is a wrong setting. The message names the key and the file, and
// quotes nothing of what stands in it.
func TestFilesOfTLSAreChecked(t *testing.T) {
	ca := tlstest.NewCA(t)
	pair, other := ca.Local("xpyd"), ca.Local("other")
	text := writeFile(t, "sesame.pem", "sesame\n", 0o600)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no key", []string{"--tls-cert", pair.Cert}, `tls.key: "" is missing: cert is set; give the private key of the certificate too`},
		{"no certificate", []string{"--tls-key", pair.Key}, `tls.cert: "" is missing: key or client_ca is set; give the certificate too`},
		{"only a client CA", []string{"--admin-tls-client-ca", ca.File}, `admin_tls.cert: "" is missing: key or client_ca is set; give the certificate too`},
		{"no file", []string{"--tls-cert", "/none", "--tls-key", pair.Key}, `tls.cert: "/none" cannot be read: no such file or directory; give a PEM file that this user may read`},
		{"no PEM", []string{"--tls-cert", text, "--tls-key", pair.Key}, `tls.cert: "` + text + `" holds no certificate; give PEM, the server's own first`},
		{"key of another", []string{"--tls-cert", pair.Cert, "--tls-key", other.Key}, `tls.key: "` + other.Key + `" holds no private key of the certificate in cert; give its PEM, without a passphrase`},
		{"no key in the file", []string{"--backend-tls-cert", pair.Cert, "--backend-tls-key", text}, `backend_tls.key: "` + text + `" holds no private key of the certificate in cert; give its PEM, without a passphrase`},
		{"no CA in the file", []string{"--backend-tls-ca", text}, `backend_tls.ca: "` + text + `" holds no certificate of a CA; give PEM`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, append(tc.args, decodeFlag...), nil)
			if err == nil {
				t.Fatal("no error")
			}
			key, _, _ := strings.Cut(tc.want, ": ")
			want := "config: " + tc.want + " (flag --" + strings.NewReplacer(".", "-", "_", "-").Replace(key)
			if got := err.Error(); !strings.HasPrefix(strings.ReplaceAll(got, text, "FILE"), strings.ReplaceAll(want, text, "FILE")) {
				t.Errorf("got  %s\nwant %s…", got, want)
			}
			if strings.Contains(strings.ReplaceAll(err.Error(), text, ""), "sesame") {
				t.Errorf("%q quotes the file", err)
			}
		})
	}
}

func TestQuestionableCertificatesGetAWarning(t *testing.T) {
	ca := tlstest.NewCA(t)
	for _, tc := range []struct {
		name string
		end  time.Duration
		mode os.FileMode
		want string // "" is none
	}{
		{"good", 10 * 24 * time.Hour, 0o600, ""},
		{"for its group", 10 * 24 * time.Hour, 0o640, ""},
		{"expired", -time.Hour, 0o600, "holds a certificate that expired on "},
		{"about to expire", time.Hour, 0o600, "holds a certificate that expires on "},
		{"not valid yet", 48 * time.Hour, 0o600, "holds a certificate that is not valid before "},
		{"open key", 10 * 24 * time.Hour, 0o644, "may be read by others (mode 0644); run chmod 640 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			end := time.Now().Add(tc.end)
			begin := end.Add(-20 * 24 * time.Hour)
			if tc.name == "not valid yet" {
				begin = end.Add(-24 * time.Hour)
			}
			pair := ca.IssueBetween("xpyd", begin, end, "127.0.0.1")
			if err := os.Chmod(pair.Key, tc.mode); err != nil {
				t.Fatal(err)
			}
			c, err := load(t, append([]string{"--tls-cert", pair.Cert, "--tls-key", pair.Key}, decodeFlag...), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := Warnings(c)
			if (tc.want == "") != (len(got) == 0) || tc.want != "" && !strings.Contains(got[0], tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
