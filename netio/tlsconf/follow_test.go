package tlsconf_test

import (
	"crypto/tls"
	"errors"
	"maps"
	"os"
	"testing"
	"time"

	"xpyd/netio/tlsconf"
	"xpyd/netio/tlsconf/tlstest"
)

type told struct {
	section string
	err     error
}

// awaitTold returns the next report, or fails.
func awaitTold(t *testing.T, from <-chan told) told {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(20 * time.Second):
		t.Fatal("no report after 20 s")
		return told{}
	}
}

func serialOf(t *testing.T, s *tlsconf.Source) string {
	t.Helper()
	cfg, err := s.Server().GetConfigForClient(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Certificates[0].Leaf.SerialNumber.String()
}

// Files that change are read again. Unusable ones are reported once, and leave the former certificate.
func TestFilesAreFollowed(t *testing.T) {
	ca := tlstest.NewCA(t)
	pair := ca.Local("xpyd")
	set, err := tlsconf.Open(tlsconf.Server{Cert: pair.Cert, Key: pair.Key}, tlsconf.Server{}, tlsconf.Client{}, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	if set.Admin.Server() != nil {
		t.Error("a port without a certificate speaks TLS")
	}
	heard := make(chan told, 64)
	set.Follow(5*time.Millisecond, func(section string, err error) { heard <- told{section, err} })
	defer set.Close()
	first := serialOf(t, set.Data)
	useless := pair.Key + ".new" // a file that is written in its place may be read half written, and is reported then
	if err := errors.Join(os.WriteFile(useless, []byte("nothing"), 0o600), os.Rename(useless, pair.Key)); err != nil {
		t.Fatal(err)
	}
	got := awaitTold(t, heard)
	var fault *tlsconf.Fault
	if got.section != "tls" || !errors.As(got.err, &fault) || fault.Key != "tls.key" || fault.Value != pair.Key {
		t.Errorf("told %v", got)
	}
	time.Sleep(50 * time.Millisecond) // ten more looks
	if len(heard) > 0 || serialOf(t, set.Data) != first {
		t.Errorf("%d more reports, serial %s, want %s", len(heard), serialOf(t, set.Data), first)
	}
	ca.Local("xpyd")
	for got = awaitTold(t, heard); got.err != nil; { // the certificate is written before its key
		got = awaitTold(t, heard)
	}
	if got.section != "tls" || serialOf(t, set.Data) == first {
		t.Errorf("told %v, serial %s again", got, first)
	}
}

// The expiry that is told is that of the certificate in force, or of one between it and the CA that ends
// sooner.
func TestExpiries(t *testing.T) {
	ca := tlstest.NewCA(t)
	day := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	data, shown, admin := ca.Issue("data", day, "x"), ca.Issue("shown", day.Add(time.Hour), "x"), ca.Issue("admin", day.Add(48*time.Hour), "x")
	between, err := os.ReadFile(ca.Issue("between", day.Add(2*time.Hour), "x").Cert)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := os.ReadFile(admin.Cert)
	if err == nil {
		err = os.WriteFile(admin.Cert, append(chain, between...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	expect := func(set *tlsconf.Set, want map[string]time.Time) {
		t.Helper()
		if got := set.Expiries(); !maps.EqualFunc(got, want, func(unix int64, end time.Time) bool { return unix == end.Unix() }) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	plain, err := tlsconf.Open(tlsconf.Server{}, tlsconf.Server{}, tlsconf.Client{}, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	expect(plain, map[string]time.Time{})
	set, err := tlsconf.Open(tlsconf.Server{Cert: data.Cert, Key: data.Key}, tlsconf.Server{Cert: admin.Cert, Key: admin.Key},
		tlsconf.Client{Cert: shown.Cert, Key: shown.Key}, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Time{"tls": day, "admin_tls": day.Add(2 * time.Hour), "backend_tls": day.Add(time.Hour)}
	expect(set, want)
	ca.Issue("data", day.Add(90*24*time.Hour), "x") // renewed in place
	set.Refresh(func(_ string, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	want["tls"] = day.Add(90 * 24 * time.Hour)
	expect(set, want)
}

// A mount that hangs holds up neither a reload nor the end.
func TestFileThatHangsStopsNothing(t *testing.T) {
	pair := tlstest.NewCA(t).Local("xpyd")
	atOpen, release := make(chan struct{}, 2), make(chan struct{}) // a certificate and a key
	defer close(release)
	read := func(path string) ([]byte, error) {
		select {
		case atOpen <- struct{}{}:
		default:
			<-release
		}
		return os.ReadFile(path)
	}
	set, err := tlsconf.Open(tlsconf.Server{Cert: pair.Cert, Key: pair.Key}, tlsconf.Server{}, tlsconf.Client{}, read)
	if err != nil {
		t.Fatal(err)
	}
	looked := make(chan struct{})
	set.Follow(time.Millisecond, func(string, error) {})
	time.Sleep(20 * time.Millisecond) // it hangs by now
	go func() {
		set.Refresh(func(string, error) {})
		set.Close()
		close(looked)
	}()
	select {
	case <-looked:
	case <-time.After(20 * time.Second):
		t.Fatal("hangs")
	}
}
