package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"xpyd/intake/limits"
)

func hexOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func hashes(keys ...string) (all [][sha256.Size]byte) {
	for _, k := range keys {
		all = append(all, sha256.Sum256([]byte(k)))
	}
	return all
}

func TestNamedKeys(t *testing.T) {
	lines := writeFile(t, "lines", "sk-plain\nci:"+hexOf("sk-ci")+"\nci:sha256:"+strings.ToUpper(hexOf("sk-ci-2"))+"\nwith:colon\n", 0o600)
	clear := writeFile(t, "clear", "sk-b\n# the next one\nsk-b2\n", 0o600)
	file := writeFile(t, "keys.yaml", fmt.Sprintf(`keys:
  - name: team-a
    sha256: %q
    models: [qwen, "llama-*"]
    in_flight: 32
    requests_per_minute: 600
    tokens_per_minute: 200000
    priority: true
  - name: team-b
    sha256: [%q, "sha256:%s"]
    key_file: %s
    models: qwen
    cache_salt: false
  - name: team-c
    sha256: %q
    cache_salt: true
`, hexOf("sk-a"), hexOf("sk-b"), hexOf("sk-b3"), clear, hexOf("sk-c")), 0o644)
	c, err := load(t, append([]string{"--api-key=zero", "--api-key-file", lines, "--keys-file", file}, decodeFlag...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.APIKeys, []string{"zero", "sk-plain", "with:colon"}) {
		t.Errorf("keys without names: %q", c.APIKeys)
	}
	want := []limits.Terms{
		{Name: "ci", Hashes: hashes("sk-ci", "sk-ci-2"), Priority: true},
		{Name: "team-a", Hashes: hashes("sk-a"), Models: []string{"qwen", "llama-*"}, InFlight: 32, RequestsPerMinute: 600, TokensPerMinute: 200000, Priority: true, CacheSalt: true},
		{Name: "team-b", Hashes: hashes("sk-b", "sk-b3", "sk-b", "sk-b2"), Models: []string{"qwen"}},
		{Name: "team-c", Hashes: hashes("sk-c"), CacheSalt: true},
	}
	if fmt.Sprintf("%+v", c.Keys) != fmt.Sprintf("%+v", want) {
		t.Errorf("named keys:\n%+v\nwant\n%+v", c.Keys, want)
	}
	if got := openDoor(c); got != nil {
		t.Errorf("with keys there is a warning: %q", got)
	}

	if err := os.WriteFile(lines, []byte("sk-next\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := c.RereadKeys(t.Context(), NewFiles(true), nil)
	if err != nil || !slices.Equal(again.APIKeys, []string{"zero", "sk-next"}) || len(again.Keys) != 3 {
		t.Errorf("read again: %q, %d named keys, %v", again.APIKeys, len(again.Keys), err)
	}
	if len(c.Keys) != 4 || len(c.APIKeys) != 3 {
		t.Error("reading again has changed the configuration that is in force")
	}
}

func TestNamedKeysRefused(t *testing.T) {
	hash := `"` + hexOf("sk-a") + `"`
	entry := func(text string) string { return "keys:\n  - name: a\n    sha256: " + hash + "\n" + text }
	for name, tc := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"empty":            {"", 0o600, "holds no key; write a list under keys:, each with a name and a sha256 or key_file"},
		"no YAML":          {"keys: [", 0o600, "cannot be used: line 1:"},
		"unknown option":   {entry("    rpm: 6\n"), 0o600, `cannot be used: line 4: no option is called "rpm"; the options of an entry are name, sha256, key_file`},
		"misspelt option":  {entry("    request_per_minute: 6\n"), 0o600, `line 4: no option is called "request_per_minute"; did you mean "requests_per_minute"?`},
		"a key as option":  {"sk-secret: a\n", 0o600, "cannot be used: line 1: holds an option that does not exist; the options of an entry are"},
		"a plain key":      {"sk-secret\n", 0o600, "cannot be used: line 1: must be a list under keys:, each entry with a name and a sha256 or key_file; a file of keys, one a line, is for api_key_file"},
		"plain keys":       {"keys:\n  - sk-secret-1\n  - sk-secret-2\n", 0o600, "line 2: an entry must have a name and a sha256 or key_file; line 3: an entry must"},
		"a key as anchor":  {"*sk-secret\n", 0o600, "cannot be used: cannot be read as YAML"},
		"a key as number":  {entry("    in_flight: sk-secret\n"), 0o600, "line 4: a value must be a whole number"},
		"two documents":    {entry("---\n" + entry("")), 0o600, "holds more than one document; write all keys under one section keys"},
		"unknown section":  {"teams: []\n", 0o600, `cannot be used: line 1: no option is called "teams"`},
		"wrong type":       {entry("    in_flight: many\n"), 0o600, "cannot be used: line 4: a value must be a whole number"},
		"below 0":          {entry("    in_flight: -1\n"), 0o600, "entry 1: has a limit below 0; leave it out for none"},
		"no name":          {"keys:\n  - sha256: " + hash + "\n", 0o600, "entry 1: name must be up to 64 letters"},
		"bad name":         {"keys:\n  - name: team a\n    sha256: " + hash + "\n", 0o600, "entry 1: name must be up to 64 letters"},
		"no key":           {"keys:\n  - name: a\n", 0o600, "entry 1: has neither sha256 nor key_file; give one of them"},
		"a clear key":      {"keys:\n  - name: a\n    sha256: sk-secret\n", 0o600, "entry 1: sha256 must be 64 hex digits in quotes"},
		"digits unquoted":  {"keys:\n  - name: a\n    sha256: 1234\n", 0o600, "entry 1: sha256 must be 64 hex digits in quotes"},
		"no key file":      {"keys:\n  - name: a\n    key_file: /nonexistent\n", 0o600, "entry 1: key_file: \"/nonexistent\" cannot be read"},
		"empty model":      {entry("    models: [\"\"]\n"), 0o600, "entry 1: models has an empty entry; remove it"},
		"name twice":       {entry("  - name: a\n    sha256: \"" + hexOf("sk-b") + "\"\n"), 0o600, "names two keys"},
		"key twice":        {entry("  - name: b\n    sha256: " + hash + "\n"), 0o600, `has the same key as "a"; leave it in one entry`},
		"others may write": {entry(""), 0o622, "may be written by others (mode 0622); run chmod go-w"},
	} {
		t.Run(name, func(t *testing.T) {
			file := writeFile(t, "keys.yaml", tc.text, tc.mode)
			_, err := load(t, append([]string{"--keys-file", file}, decodeFlag...), nil)
			if err == nil {
				t.Fatal("taken")
			}
			text := err.Error()
			if !strings.HasPrefix(text, "config: keys_file: ") || !strings.Contains(text, tc.want) || strings.ContainsAny(text, "\n") ||
				strings.Contains(text, "keyEntry") || strings.Contains(text, "sk-s") {
				t.Errorf("got %s, want %s", text, tc.want)
			}
		})
	}
	t.Run("a line with a bad name", func(t *testing.T) {
		file := writeFile(t, "lines", "sk-a\nté:"+hexOf("sk-b")+"\n", 0o600)
		_, err := load(t, append([]string{"--api-key-file", file}, decodeFlag...), nil)
		checkUsage(t, err, `config: api_key_file: "`+file+`" has a bad name for key 2; use up to 64 letters, digits, dots, dashes and underscores (flag --api-key-file, XPYD_API_KEY_FILE)`)
	})
}
