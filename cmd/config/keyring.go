package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"xpyd/intake/limits"
	"xpyd/internal/nearest"
)

// keyEntry is an entry of keys_file.
type keyEntry struct {
	Name              string    `yaml:"name"`
	SHA256            oneOrMore `yaml:"sha256"`
	KeyFile           string    `yaml:"key_file"`
	Models            oneOrMore `yaml:"models"`
	InFlight          int       `yaml:"in_flight"`
	RequestsPerMinute int       `yaml:"requests_per_minute"`
	TokensPerMinute   int       `yaml:"tokens_per_minute"`
	Priority          bool      `yaml:"priority"`
	CacheSalt         *bool     `yaml:"cache_salt"`
}

// keyList is the whole of keys_file.
type keyList struct {
	Keys []keyEntry `yaml:"keys"`
}

// oneOrMore is a text, or a list of texts.
type oneOrMore []string

// UnmarshalYAML takes both forms, for package yaml.
func (o *oneOrMore) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		*o = oneOrMore{n.Value}
		return nil
	}
	return n.Decode((*[]string)(o))
}

// named matches a line of api_key_file that has a name and the hash of its key.
var named = regexp.MustCompile(`^([^:\s]+):(?:sha256:)?([0-9a-fA-F]{64})$`)

// keyName matches the name of a key, which stands in the log and in metrics.
var keyName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// RereadKeys reads the files of client keys again, and nothing else.
func (c Config) RereadKeys(ctx context.Context, files *Files, environ []string) (Config, error) {
	open := func(path string) readFile { return files.read(ctx, path) }
	err := c.readClientKeys(open, lookupEnv(environ, "CREDENTIALS_DIRECTORY"))
	return c, err
}

// readClientKeys puts all keys without a name into APIKeys, and those with one into Keys.
func (c *Config) readClientKeys(open opener, credentials string) error {
	c.APIKeys, c.Keys = slices.Clone(c.givenKeys), nil
	if c.APIKeyFile != "" {
		lines, _, err := readKeys("api_key_file", c.APIKeyFile, open, credentials)
		if err != nil {
			return err
		}
		for i, line := range lines {
			m := named.FindStringSubmatch(line)
			if m == nil {
				c.APIKeys = append(c.APIKeys, line)
				continue
			}
			if !keyName.MatchString(m[1]) {
				return invalid("api_key_file", c.APIKeyFile, fmt.Sprintf("has a bad name for key %d; use up to 64 letters, digits, dots, dashes and underscores", i+1))
			}
			c.addHash(m[1], m[2])
		}
	}
	if c.KeysFile == "" {
		return c.checkNames()
	}
	entries, err := readEntries(c.KeysFile, open)
	if err != nil {
		return err
	}
	for i := range entries {
		terms, err := entries[i].terms(open, credentials)
		if err != nil {
			return invalid("keys_file", c.KeysFile, fmt.Sprintf("entry %d: %s", i+1, err))
		}
		c.Keys = append(c.Keys, terms)
	}
	return c.checkNames()
}

// addHash adds a line of api_key_file. Two lines of one name are two keys of one holder, of which one
// may replace the other.
func (c *Config) addHash(name, digits string) {
	var hash [sha256.Size]byte
	_, _ = hex.Decode(hash[:], []byte(digits)) // named has matched
	for i := range c.Keys {
		if c.Keys[i].Name == name {
			c.Keys[i].Hashes = append(c.Keys[i].Hashes, hash)
			return
		}
	}
	c.Keys = append(c.Keys, limits.Terms{Name: name, Hashes: [][sha256.Size]byte{hash}, Priority: true})
}

// readEntries reads keys_file. It holds hashes, so others may read it, but none may write it.
func readEntries(path string, open opener) ([]keyEntry, error) {
	file := open(path)
	var unread unreadError
	switch {
	case errors.As(file.err, &unread):
		return nil, fmt.Errorf("keys_file: %q %w", path, file.err)
	case file.err != nil:
		return nil, invalid("keys_file", path, fmt.Sprintf("cannot be read: %s; give a file that this user may read", file.err))
	case file.Mode.Perm()&0o022 != 0:
		return nil, invalid("keys_file", path, fmt.Sprintf("may be written by others (mode %04o); run chmod go-w %s", file.Mode.Perm(), path))
	}
	var all keyList
	dec := yaml.NewDecoder(bytes.NewReader(file.Text))
	dec.KnownFields(true)
	err := dec.Decode(&all)
	if err == nil && !errors.Is(dec.Decode(new(yaml.Node)), io.EOF) {
		err = errors.New("holds more than one document; write all keys under one section keys")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, invalid("keys_file", path, "cannot be used: "+keysFault(err))
	}
	if len(all.Keys) == 0 {
		return nil, invalid("keys_file", path, "holds no key; write a list under keys:, each with a name and a sha256 or key_file")
	}
	return all.Keys, nil
}

// keysFault returns what is wrong with keys_file in one line. Package yaml quotes the file, which may hold
// a key in place of its hash, so nothing of the file is repeated except what looks like an option's name.
func keysFault(err error) string {
	faults := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) {
		faults = wrong.Errors
	}
	for i, text := range faults {
		line := ""
		if m := atLine.FindStringSubmatch(text); m != nil {
			line, text = m[1], m[2]
		}
		faults[i] = line + withoutText(text)
	}
	return strings.Join(faults, "; ")
}

var (
	atLine   = regexp.MustCompile(`^(line \d+: )(.*)`)
	noOption = regexp.MustCompile(`^field (.*) not found in type `)
	badValue = regexp.MustCompile(`^cannot unmarshal .* into ([a-zA-Z.\[\]]+)$`)
	// ofScanner matches faults of which package yaml quotes nothing.
	ofScanner = regexp.MustCompile(`^(did not find|could not find|found |mapping values|block |control characters|holds more)`)
	// likeOption matches what may be a misspelt option. No key looks like it.
	likeOption = regexp.MustCompile(`^[a-z_]{1,24}$`)
)

// withoutText rewrites a fault of package yaml without any text of the file.
func withoutText(text string) string {
	if m := noOption.FindStringSubmatch(text); m != nil {
		return noSuchOption(m[1])
	}
	if m := badValue.FindStringSubmatch(text); m != nil {
		want, known := map[string]string{
			"int": "a value must be a whole number", "bool": "a value must be true or false", "string": "a value must be a text",
			"[]string": "a value must be a text or a list of texts", "[]config.keyEntry": "keys: must be a list of entries",
			"config.keyEntry": "an entry must have a name and a sha256 or key_file",
			"config.keyList":  "must be a list under keys:, each entry with a name and a sha256 or key_file; a file of keys, one a line, is for api_key_file",
		}[m[1]]
		if known {
			return want
		}
	}
	if !ofScanner.MatchString(text) {
		return "cannot be read as YAML"
	}
	return text
}

// noSuchOption refuses a name that no option of keys_file has.
func noSuchOption(name string) string {
	options := []string{"name", "sha256", "key_file", "models", "in_flight", "requests_per_minute", "tokens_per_minute", "priority", "cache_salt"}
	all := "the options of an entry are " + strings.Join(options, ", ")
	if !likeOption.MatchString(name) {
		return "holds an option that does not exist; " + all
	}
	if near := nearest.Name(name, append(options, "keys")); near != "" {
		all = fmt.Sprintf("did you mean %q?", near)
	}
	return fmt.Sprintf("no option is called %q; %s", name, all)
}

// terms checks an entry and reads its keys. No error shows any part of them.
func (e *keyEntry) terms(open opener, credentials string) (limits.Terms, error) {
	t := limits.Terms{
		Name: e.Name, Models: e.Models, InFlight: e.InFlight,
		RequestsPerMinute: e.RequestsPerMinute, TokensPerMinute: e.TokensPerMinute, Priority: e.Priority,
		CacheSalt: len(e.Models) > 0, // keys with models are for several parties
	}
	if e.CacheSalt != nil {
		t.CacheSalt = *e.CacheSalt
	}
	switch {
	case !keyName.MatchString(e.Name):
		return t, errors.New("name must be up to 64 letters, digits, dots, dashes and underscores")
	case len(e.SHA256) == 0 && e.KeyFile == "":
		return t, errors.New("has neither sha256 nor key_file; give one of them")
	case min(e.InFlight, e.RequestsPerMinute, e.TokensPerMinute) < 0:
		return t, errors.New("has a limit below 0; leave it out for none")
	case slices.Contains(e.Models, ""):
		return t, errors.New("models has an empty entry; remove it")
	}
	for _, digits := range e.SHA256 {
		hash, err := hex.DecodeString(strings.TrimPrefix(digits, "sha256:"))
		if err != nil || len(hash) != sha256.Size {
			return t, errors.New("sha256 must be 64 hex digits in quotes, as of: printf %s KEY | sha256sum")
		}
		t.Hashes = append(t.Hashes, [sha256.Size]byte(hash))
	}
	if e.KeyFile == "" {
		return t, nil
	}
	keys, _, err := readKeys("key_file", e.KeyFile, open, credentials)
	for _, key := range keys {
		if !sendable(key) {
			return t, fmt.Errorf("key_file %q holds a key with a space or a character that no header carries; use visible ASCII", e.KeyFile)
		}
		t.Hashes = append(t.Hashes, sha256.Sum256([]byte(key)))
	}
	return t, err
}

// checkNames refuses names and keys that stand for two holders.
func (c *Config) checkNames() error {
	names := map[string]bool{}
	holders := map[[sha256.Size]byte]string{}
	for _, t := range limits.Plain(c.APIKeys) {
		names[t.Name] = true
	}
	for _, t := range c.Keys {
		if names[t.Name] {
			return invalid("keys_file", t.Name, "names two keys, here or in api_key_file, where a key without a name is key-1, key-2 and so on; give both hashes to one entry, or another name")
		}
		names[t.Name] = true
		for _, hash := range t.Hashes {
			if other, twice := holders[hash]; twice && other != t.Name {
				return invalid("keys_file", t.Name, fmt.Sprintf("has the same key as %q; leave it in one entry", other))
			}
			holders[hash] = t.Name
		}
	}
	return nil
}
