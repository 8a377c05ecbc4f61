package process

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// A program is known by what it says; one that says nothing and ends, or nonsense, is no
// more there afterwards.
func TestStartTelling(t *testing.T) {
	for _, tc := range []struct{ name, script, want string }{
		{"it tells", `echo starting; echo '{"listen":"here"}'; exec sleep 60`, ""},
		{"it ends", `echo no port is free; exit 1`, "has ended: no port is free"},
		{"half a line is none", `printf '{"listen":"here"}'; exit 1`, "has ended"},
		{"no JSON", `echo '"listen" here'; exec sleep 60`, "invalid character"},
	} {
		var line struct{ Listen string }
		p, err := StartTelling(t.Context(), filepath.Join(t.TempDir(), "log"), nil, `"listen"`, &line, "/bin/sh", "-c", tc.script)
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want %q in it", tc.name, err, tc.want)
			}
			continue
		}
		if err != nil || line.Listen != "here" {
			t.Fatalf("%s: error %v, line %+v", tc.name, err, line)
		}
		p.Stop()
		select {
		case <-p.ended:
		default:
			t.Errorf("%s: it runs on after Stop", tc.name)
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
