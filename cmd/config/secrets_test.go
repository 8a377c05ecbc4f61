package config

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"xpyd/internal/files"
	"xpyd/proxy"
)

// Secrets are accepted as Kubernetes, Docker and systemd mount them, and nothing that is more open.
func TestModesOfSecrets(t *testing.T) {
	own := os.Getegid()
	for _, c := range []struct {
		file     string
		mode     fs.FileMode
		uid, gid int
		open     bool
	}{
		{"/etc/xpyd/keys", 0o600, 1000, own, false},
		{"/etc/xpyd/keys", 0o440, 1000, own, true}, // its owner's group, not a loan
		{"/run/secrets/keys", 0o444, 0, 0, false},
		{"/var/run/secrets/xpyd/keys", 0o444, 0, 0, false},
		{"/run/secrets/keys", 0o666, 0, 0, true},
		{"/run/secretsome/keys", 0o444, 0, 0, true},
		{"/run/credentials/xpyd.service/keys", 0o440, 0, 0, false},
	} {
		read := readFile{File: files.File{Mode: c.mode, UID: c.uid, GID: c.gid}}
		if got := openTo(c.file, read, "/run/credentials/xpyd.service") != 0; got != c.open {
			t.Errorf("%s %04o of %d:%d: open %t, want %t", c.file, c.mode, c.uid, c.gid, got, c.open)
		}
	}
	for _, c := range []struct {
		uid, gid, user int
		groups         []int
		lent           bool
	}{
		{0, 2000, 1000, []int{1000, 2000}, true},
		{0, 0, 1000, []int{0}, true}, // OpenShift
		{0, 2000, 0, []int{0, 2000}, true},
		{0, 0, 0, []int{0}, false},
		{0, 2000, 1000, []int{1000}, false},
		{1000, 2000, 1001, []int{2000}, false},
	} {
		if got := lentByRoot(files.File{UID: c.uid, GID: c.gid}, c.user, c.groups); got != c.lent {
			t.Errorf("%+v: lent %t", c, got)
		}
	}
}

// Editors of Windows begin a file with a byte order mark.
func TestByteOrderMarks(t *testing.T) {
	keys := writeFile(t, "keys", "\ufeffsesame\n", 0o600)
	for name, text := range map[string]string{
		"c.json": `{"decode": ["http://d:1"], "api_key_file": "` + keys + `"}`,
		"c.toml": "decode = ['http://d:1']\napi_key_file = '" + keys + "'\n",
		"c.yaml": "decode: ['http://d:1']\napi_key_file: '" + keys + "'\n",
	} {
		c, err := load(t, []string{"--config", writeFile(t, name, "\ufeff"+text, 0o600)}, nil)
		if err != nil || len(c.APIKeys) != 1 || c.APIKeys[0] != "sesame" {
			t.Errorf("%s: %q, %v", name, c.APIKeys, err)
		}
	}
}

func TestLogLevelInAnyCase(t *testing.T) {
	for given, want := range map[string]string{"INFO": "info", "Warning": "warn", "warn": "warn", "DEBUG": "debug"} {
		c, err := load(t, decodeFlag, []string{"XPYD_LOG_LEVEL=" + given, "XPYD_LOG_FORMAT=JSON"})
		if err != nil || c.Log.Level != want || c.Log.Format != "json" {
			t.Errorf("%s: %q, %q, %v", given, c.Log.Level, c.Log.Format, err)
		}
	}
}

// A certificate is read more than once, which a pipe is not.
func TestCertificateThatIsAPipe(t *testing.T) {
	pipe := t.TempDir() + "/pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go feed(t, pipe, "-----BEGIN CERTIFICATE-----\n")
	_, err := load(t, append([]string{"--tls-cert", pipe, "--tls-key", pipe}, decodeFlag...), nil)
	if err == nil || !strings.Contains(err.Error(), "tls.cert") || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("%v, want it refused as no regular file", err)
	}
}

// A word that is nearly read-only must not be a token with all rights, and the secret before it a name that everybody sees.
func TestAdminTokensThatOnlyRead(t *testing.T) {
	load := func(line string) (Config, string, error) {
		file := writeFile(t, "tokens", "# who holds what\n\nanna s3cretA\n"+line+"\n", 0o600)
		c, err := load(t, append([]string{"--admin-token-file", file}, decodeFlag...), nil)
		return c, file, err
	}
	for _, line := range []string{"s3cretC readonly", "s3cretC read-only", "s3cretC Read_Only", "ben s3cretC readonly", "ben s3cretC READ-ONLY", "ben s3cretC x read-only", "readonly"} {
		_, file, err := load(line)
		checkUsage(t, err, `config: admin_token_file: "`+file+`" the token in line 4 ends as one that only reads; write "name token read-only", with nothing left out (flag --admin-token-file, XPYD_ADMIN_TOKEN_FILE)`)
	}
	c, _, err := load("ben s3cretC read-only")
	if err != nil || len(c.AdminTokens) != 2 || c.AdminTokens[1] != (proxy.AdminToken{Name: "ben", Secret: "s3cretC", ReadOnly: true}) {
		t.Errorf("%v, %v", c.AdminTokens, err)
	}
	if got := TokenOf(""); got != "" {
		t.Errorf("%q in an empty line", got)
	}
}
