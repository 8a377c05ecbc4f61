package cmd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xpyd/cmd/config"
	"xpyd/netio/tlsconf/tlstest"
)

// startAdmin starts a proxy whose engines nobody needs.
func startAdmin(t *testing.T, args ...string) *process {
	t.Helper()
	p := startSelf(t, append([]string{"serve", "--prefill", "http://127.0.0.1:7", "--decode", "http://127.0.0.1:8", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	p.serving(1)
	return p
}

// status takes more than one --admin, but the default is one URL.
func TestHelpShowsOneAdminURL(t *testing.T) {
	for _, command := range []string{"status", "ctl"} {
		out, _, err := runRoot(t, command, "--help")
		if want := `(default "http://127.0.0.1:8081")`; err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, and no %s: %s", command, err, want, out)
		}
	}
}

// A value that the admin port refuses is a usage error, as one that ctl refuses itself. What the pools do not allow is none.
func TestCtlRefusesValues(t *testing.T) {
	t.Parallel()
	p := startAdmin(t)
	add := []string{"ctl", "add", "http://127.0.0.1:9", "--role", "decode"}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{append(add, "--weight", "0"), "weight: must be above 0"},
		{append(add, "--weight", "1000"), "weight: 1000 must be from 0.01 to 100"},
		{append(add, "--weight", "Inf"), "--weight and --gpus must be numbers"},
		{append(add, "--gpus", "0"), "gpus: must be above 0"},
		{append(add, "--bootstrap", "0"), "bootstrap: 0 must be a port from 1 to 65535"},
		{append(add, "--bootstrap", "-1"), "bootstrap: -1 must be a port from 1 to 65535"},
		{append(add, "--state", ""), "state: is empty"},
		{append(add, "--connector", ""), "connector: is empty"},
		{[]string{"ctl", "add", "127.0.0.1:9", "--role", "decode"}, `url: "127.0.0.1:9" must start with http:// or https://`},
		{[]string{"ctl", "weight", "127.0.0.1:8", "1000"}, "weight: 1000 must be"},
		{[]string{"ctl", "weight", "127.0.0.1:8", "Inf"}, `weight: "Inf" must be a number`},
		{[]string{"ctl", "log-level", "debgu"}, `level: "debgu" must be debug, info, warn or error`},
	} {
		var usage config.UsageError
		if _, err := p.ctl(tc.args...); !errors.As(err, &usage) || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%q: %v is no usage error, or not %s", tc.args, err, tc.want)
		}
	}
	p.expectPool("decode", "http://127.0.0.1:8 ready 1")
	for want, args := range map[string][]string{
		"is in the decode pool already; change it with xpyd ctl weight or xpyd ctl role, or with PATCH": {"ctl", "add", "http://127.0.0.1:8", "--role", "decode"},
		"is the last decode backend":                                      {"ctl", "remove", "127.0.0.1:8"},
		"there is no backend zzz; xpyd status and GET /backends list all": {"ctl", "drain", "zzz"},
	} {
		var usage config.UsageError
		if _, err := p.ctl(args...); err == nil || errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v is a usage error, or not %s", args, err, want)
		}
	}
	p.operate(append(add, "--weight", "2", "--state", "disabled")...)
	p.expectPool("decode", "http://127.0.0.1:8 ready 1", "http://127.0.0.1:9 disabled 2")
}

// What helps against a fault of TLS is a flag of ctl, not a key of the configuration of the proxy.
func TestCtlExplainsTLS(t *testing.T) {
	t.Parallel()
	ca, foreign := tlstest.NewCA(t), tlstest.NewCA(t)
	good := ca.Local("xpyd")
	far := ca.Issue("far", time.Now().Add(time.Hour), "far.example")
	plain := startAdmin(t).admin
	serve := func(pair tlstest.Pair, args ...string) string {
		return startAdmin(t, append([]string{"--admin-tls-cert", pair.Cert, "--admin-tls-key", pair.Key}, args...)...).admin
	}
	secured, other, careful := serve(good), serve(far), serve(good, "--admin-tls-client-ca", ca.File)
	for _, tc := range []struct{ url, ca, want string }{
		{"http://" + secured, ca.File, "--admin: http://" + secured + " speaks TLS; give https://" + secured},
		{"https://" + plain, ca.File, "TLS: it does not speak TLS; give http:// in --admin"},
		{"https://" + secured, foreign.File, "TLS: its certificate is signed by a CA that is not known here; give that CA in --admin-ca"},
		{"https://" + other, ca.File, `TLS: its certificate is for ["far.example"] and not for 127.0.0.1; give one of these names in --admin`},
		{"https://" + careful, ca.File, "TLS: it refuses xpyd's certificate (certificate required); give one that it takes in --admin-cert and --admin-key"},
	} {
		want := tc.want
		if strings.HasPrefix(want, "TLS: ") {
			want = tc.url + ": " + want
		}
		for _, command := range [][]string{{"status"}, {"ctl", "reload"}, {"healthcheck"}} {
			root := newRootCmd()
			root.SetArgs(append(command, "--admin", tc.url, "--admin-ca", tc.ca))
			if err := root.ExecuteContext(t.Context()); err == nil || err.Error() != want {
				t.Errorf("%v: %v\nwant %s", command, err, want)
			}
		}
	}
}

// check refuses the state files that serve refuses, and both leave them as they are. A folder may be made only
// for the process that serves.
func TestCheckAndServeRefuseStateFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.json")
	if err := os.WriteFile(garbage, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		garbage:         `config: state_file: "` + garbage + `" holds no state of xpyd: invalid character 'g' looking for beginning of value; move it away to start without run-time changes`,
		dir:             `config: state_file: "` + dir + `" cannot be read: is a directory; give a file that this user may read and write`,
		"/nope/x.json":  `config: state_file: "/nope/x.json" cannot be written: no such file or directory; give a path in a folder that exists and that this user may write to`,
		dir + "/x.json": "",
	} {
		args := []string{"--state-file", path, "--decode", "http://127.0.0.1:8", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
		_, err := runCheck(args...)
		if want == "" || path == "/nope/x.json" {
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
		} else {
			checkUsage(t, err, want)
		}
		if want == "" {
			continue
		}
		root := newRootCmd()
		root.SetArgs(append([]string{"serve"}, args...))
		checkUsage(t, root.ExecuteContext(t.Context()), want)
	}
	left, err := os.ReadDir(dir)
	if text, _ := os.ReadFile(garbage); err != nil || string(text) != "garbage" || len(left) != 1 {
		t.Errorf("%v is there, %q, %v", left, text, err)
	}
}
