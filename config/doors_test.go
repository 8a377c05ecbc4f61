package config

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Profiles hold prompts. xpyd warns if other machines can get them.
func TestProfilesForEverybodyGetAWarning(t *testing.T) {
	for addr, warned := range map[string]bool{
		"0.0.0.0:8081": true, ":8081": true, "[::]:8081": true, "10.0.0.9:8081": true, "admin.example:8081": true,
		"127.0.0.1:8081": false, "127.9.0.1:8081": false, "[::1]:8081": false, "localhost:8081": false,
	} {
		for _, args := range [][]string{{"--pprof", "--admin", addr}, {"--admin", addr}} {
			c, err := load(t, append(args, decodeFlag...), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := Warnings(c)
			if want := warned && len(args) == 3; (len(got) == 1) != want || want && !strings.HasPrefix(got[0], `admin: "`+addr+`" lets others than this machine take profiles, in which prompts stand, `) {
				t.Errorf("%q: %q", args, got)
			}
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
			args := append([]string{"--config", file}, decodeFlag...)
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
