package process

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A program is recognised by a whole line that it writes. One that does not write it is ended.
func TestStartTelling(t *testing.T) {
	for _, tc := range []struct{ name, script, want string }{
		{"it tells", `echo starting; echo '{"listen":"here"}'; exec sleep 60`, ""},
		{"in two parts", `printf '{"listen":"he'; sleep 0.1; echo 're"}'; exec sleep 60`, ""},
		{"it ends", `echo no port is free; exit 1`, "has ended: no port is free"},
		{"no JSON", `echo '"listen" here'; exec sleep 60`, "invalid character"},
	} {
		dir := t.TempDir()
		var line struct{ Listen string }
		p, err := StartTelling(t.Context(), filepath.Join(dir, "log"), nil, `"listen"`, &line, "/bin/sh", "-c", "echo $$ >"+dir+"/pid; "+tc.script)
		switch {
		case tc.want != "":
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want %q in it", tc.name, err, tc.want)
			}
		case err != nil || line.Listen != "here":
			t.Fatalf("%s: error %v, line %+v", tc.name, err, line)
		default:
			p.Stop()
		}
		var pid int
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err == nil {
			_, err = fmt.Sscan(string(text), &pid)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s: the program is there afterwards: %v", tc.name, err)
		}
	}
}

func TestGet(t *testing.T) {
	s := httptest.NewServer(http.StripPrefix("/page", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("text")) })))
	defer s.Close()
	if page, err := Get(t.Context(), s.URL+"/page"); err != nil || string(page) != "text" {
		t.Errorf("page %q, error %v", page, err)
	}
	if _, err := Get(t.Context(), s.URL+"/none"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("of none: error %v", err)
	}
}

// A program that is told to end must do so with status 0, and in time.
func TestEnd(t *testing.T) {
	for _, tc := range []struct {
		name, script, want string
		within             time.Duration
	}{
		{"it ends", `trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done`, "", time.Minute},
		{"with a status", `trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done`, "exit status 3", time.Minute},
		{"too late", `trap '' TERM; echo up; while :; do sleep 0.01; done`, "did not end within", 500 * time.Millisecond},
		{"before", `echo up; exit 0`, "ended by itself", time.Minute},
	} {
		p, err := Start(filepath.Join(t.TempDir(), "log"), nil, "/bin/sh", "-c", tc.script)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.AwaitLine(t.Context(), "up"); err != nil {
			t.Fatal(err)
		}
		if tc.name == "before" {
			<-p.ended
		}
		if err := p.End(tc.within); (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", tc.name, err, tc.want)
		}
		if !p.Gone() {
			t.Errorf("%s: it is there afterwards", tc.name)
		}
	}
}
