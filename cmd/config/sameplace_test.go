package config

import (
	"slices"
	"strings"
	"testing"

	"xpyd/router"
)

// Ports that cannot be, or that lead requests back to xpyd, are refused before anything is opened.
func TestPortsThatMeet(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--listen :8081", `admin: "127.0.0.1:8081" is within the data port, listen ":8081"`},
		{"--listen [::]:8081", "is within the data port"},
		{"--listen 127.0.0.1:9000 --admin 0.0.0.0:9000 --admin-token t", "is within the data port"},
		{"--listen 127.0.0.2:8081", ""},
		{"--listen :0 --admin 127.0.0.1:0", ""},
		{"--decode http://localhost:8080", `decode: "http://localhost:8080" is xpyd's own data port (listen ":8080")`},
		{"--decode http://127.0.0.1:8080", "own data port"},
		{"--prefill http://[::1]:8080", "prefill: "},
		{"--listen 127.0.0.1:9000 --decode http://127.0.0.1:9000", "own data port"},
		{"--listen localhost:9000 --decode http://127.0.0.1:9000", "own data port"},
		{"--listen 192.0.2.1:8080 --decode http://127.0.0.1:8080", ""},
		{"--decode http://192.0.2.1:8080", ""}, // another machine
	} {
		_, err := load(t, append(strings.Fields(c.args), decodeFlag...), nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestEngineUnderTwoNames(t *testing.T) {
	for args, want := range map[string]bool{
		"--decode http://localhost:8200,http://127.0.0.1:8200":               true,
		"--prefill http://localhost:8200 --decode http://[::1]:8200":         true,
		"--decode http://localhost:8200,http://127.0.0.1:8201,http://a:8200": false,
		"--decode http://localhost:8200@0,http://localhost:8200@1":           false,
		"--prefill http://a:8000/p --decode http://a:8000/d":                 false,
		"--decode http://localhost:8000/d,http://127.0.0.1:8000/d/":          true,
	} {
		c, err := load(t, strings.Fields(args), nil)
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		if got := slices.ContainsFunc(Warnings(c), func(w string) bool { return strings.Contains(w, "under two names") }); got != want {
			t.Errorf("%s: warned %t, want %t", args, got, want)
		}
	}
}

// The data port does not become an engine over the admin port either.
func TestOwnPortIsNoMember(t *testing.T) {
	c, err := load(t, decodeFlag, nil)
	if err != nil {
		t.Fatal(err)
	}
	pools := c.Router
	pools.Decode = append(slices.Clone(pools.Decode), router.MustEntries("http://localhost:8080")...)
	if err := c.Fits(pools); err == nil || !strings.Contains(err.Error(), "own data port") {
		t.Errorf("%v, want that it is the own data port", err)
	}
}
