package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// readKeyFiles adds the keys of api_key_file to APIKeys and puts that of
// backend_api_key_file into BackendAPIKey. credentials is the directory of systemd's
// LoadCredential, "" for none. No error shows a key.
func (c *config) readKeyFiles(credentials string) error {
	if c.APIKeyFile != "" {
		keys, err := readKeys("api_key_file", c.APIKeyFile, credentials)
		if err != nil {
			return err
		}
		c.APIKeys = slices.Concat(c.APIKeys, keys)
	}
	if c.BackendAPIKey != "" && c.BackendAPIKeyFile != "" {
		return fmt.Errorf("backend_api_key_file: backend_api_key is set as well; give one of them %s", key{path: "backend_api_key_file"}.names())
	}
	if c.BackendAPIKeyFile != "" {
		keys, err := readKeys("backend_api_key_file", c.BackendAPIKeyFile, credentials)
		if err != nil {
			return err
		}
		if len(keys) > 1 {
			return invalid("backend_api_key_file", c.BackendAPIKeyFile, fmt.Sprintf("holds %d keys; leave one", len(keys)))
		}
		c.BackendAPIKey = keys[0]
	}
	for i, k := range c.APIKeys {
		if !sendable(k) {
			return fmt.Errorf("api_keys: key %d holds a space or a character that no header carries; use visible ASCII %s", i+1, key{path: "api_keys"}.names())
		}
	}
	if c.BackendAPIKey != "" && !sendable(c.BackendAPIKey) {
		return fmt.Errorf("backend_api_key: holds a space or a character that no header carries; use visible ASCII %s", key{path: "backend_api_key"}.names())
	}
	return nil
}

// readKeys returns at least one key: an empty file would open the door to everybody.
func readKeys(path, file, credentials string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, invalid(path, file, fmt.Sprintf("cannot be read: %s; give a file that this user may read", fileError(err)))
	}
	if err := checkKeyMode(path, file, credentials); err != nil {
		return nil, err
	}
	var keys []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		return nil, invalid(path, file, "holds no key; write one a line")
	}
	return keys, nil
}

func checkKeyMode(path, file, credentials string) error {
	info, err := os.Stat(file)
	if err != nil {
		return invalid(path, file, fmt.Sprintf("cannot be read: %s", fileError(err)))
	}
	open := info.Mode().Perm() & 0o077
	if credentials != "" && filepath.Dir(filepath.Clean(file)) == filepath.Clean(credentials) {
		open &^= 0o070 // systemd lets the service in by an ACL, whose mask shows as group bits
	}
	if open != 0 {
		return invalid(path, file, fmt.Sprintf("may be read by others (mode %04o); run chmod 600 %s", info.Mode().Perm(), file))
	}
	return nil
}

// sendable: visible ASCII, so that the key fits a header and no line break slips in.
func sendable(k string) bool {
	return k != "" && !strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' })
}
