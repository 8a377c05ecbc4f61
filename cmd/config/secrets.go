package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"xpyd/internal/files"
	"xpyd/proxy"
)

// readKeyFiles reads the keys of clients and the tokens of operators, and puts the key of backend_api_key_file into
// BackendAPIKey. credentials is the directory of systemd's LoadCredential, or "". No error
// shows a key.
func (c *Config) readKeyFiles(open opener, credentials string) error {
	c.givenKeys = c.APIKeys
	if err := c.readClientKeys(open, credentials); err != nil {
		return err
	}
	if err := c.readBackendKey(open, credentials); err != nil {
		return err
	}
	if err := c.readAdminTokens(open, credentials); err != nil {
		return err
	}
	return c.checkKeys()
}

func (c *Config) readBackendKey(open opener, credentials string) error {
	const path = "backend_api_key_file"
	if c.BackendAPIKeyFile == "" {
		return nil
	}
	if c.BackendAPIKey != "" {
		return fmt.Errorf("%s: backend_api_key is set as well; give one of them %s", path, key{path: path}.names())
	}
	keys, _, err := readKeys(path, c.BackendAPIKeyFile, open, credentials)
	if err != nil {
		return err
	}
	if len(keys) > 1 {
		return invalid(path, c.BackendAPIKeyFile, fmt.Sprintf("holds %d keys; leave one", len(keys)))
	}
	c.BackendAPIKey = keys[0]
	return nil
}

// checkKeys refuses keys that no header carries.
func (c *Config) checkKeys() error {
	for i, k := range c.APIKeys {
		if !sendable(k) {
			return fmt.Errorf("api_keys: key %d holds a space or a character that no header carries; use visible ASCII %s", i+1, key{path: "api_keys"}.names())
		}
	}
	for _, one := range []struct{ path, value string }{{"backend_api_key", c.BackendAPIKey}, {"admin_token", c.AdminToken}} {
		if one.value != "" && !sendable(one.value) {
			return fmt.Errorf("%s: holds a space or a character that no header carries; use visible ASCII %s", one.path, key{path: one.path}.names())
		}
	}
	return nil
}

// readOnly is the word after a token that may only read.
const readOnly = "read-only"

// readAdminTokens reads admin_token_file: one token a line, perhaps after the name of its holder and before "read-only".
// No error shows a token.
func (c *Config) readAdminTokens(open opener, credentials string) error {
	const path = "admin_token_file"
	c.AdminTokens = nil
	if c.AdminTokenFile == "" {
		return nil
	}
	if c.AdminToken != "" {
		return fmt.Errorf("%s: admin_token is set as well; give one of them %s", path, key{path: path}.names())
	}
	lines, at, err := readKeys(path, c.AdminTokenFile, open, credentials)
	if err != nil {
		return err
	}
	for i, line := range lines {
		t, wrong := parseAdminToken(line)
		if wrong == "" && slices.ContainsFunc(c.AdminTokens, func(o proxy.AdminToken) bool { return o.Secret == t.Secret }) {
			wrong = "is there twice; give each holder one of their own"
		}
		if wrong != "" {
			return invalid(path, c.AdminTokenFile, fmt.Sprintf("the token in line %d %s", at[i], wrong))
		}
		c.AdminTokens = append(c.AdminTokens, t)
	}
	return nil
}

func parseAdminToken(line string) (t proxy.AdminToken, wrong string) {
	words := strings.Fields(line)
	// A misspelt word must not become a token with all rights, and the token before it a name.
	if n := len(words) - 1; n >= 0 && strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(words[n])) == "readonly" {
		if n != 2 || words[n] != readOnly {
			return t, `ends as one that only reads; write "name token ` + readOnly + `", with nothing left out`
		}
		t.ReadOnly, words = true, words[:n]
	}
	switch len(words) {
	case 2:
		if t.Name = words[0]; !keyName.MatchString(t.Name) {
			return t, "has a bad name; use up to 64 letters, digits, dots, dashes and underscores"
		}
		fallthrough
	case 1:
		t.Secret = words[len(words)-1]
	default:
		return t, `is followed by other words; write the token alone, or "name token", or "name token ` + readOnly + `"`
	}
	if !sendable(t.Secret) {
		return t, "holds a character that no header carries; use visible ASCII"
	}
	return t, ""
}

// TokenOf returns the token in a line of admin_token_file.
func TokenOf(line string) string {
	t, _ := parseAdminToken(line)
	return t.Secret
}

// readKeys returns at least one key, because an empty file would open the door to everybody, and the number of the line of each.
func readKeys(path, file string, open opener, credentials string) (keys []string, at []int, err error) {
	read := open(file)
	var unread unreadError
	if errors.As(read.err, &unread) {
		return nil, nil, fmt.Errorf("%s: %q %w", path, file, read.err)
	}
	if read.err != nil {
		return nil, nil, invalid(path, file, fmt.Sprintf("cannot be read: %s; give a file that this user may read", read.err))
	}
	if err := checkKeyMode(path, file, read, credentials); err != nil {
		return nil, nil, err
	}
	n := 0
	for line := range strings.Lines(string(read.Text)) {
		n++
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			keys, at = append(keys, line), append(at, n)
		}
	}
	if len(keys) == 0 {
		return nil, nil, invalid(path, file, "holds no key; write one a line")
	}
	return keys, at, nil
}

func checkKeyMode(path, file string, read readFile, credentials string) error {
	if openTo(file, read, credentials) != 0 {
		return invalid(path, file, fmt.Sprintf("may be read by others (mode %04o); run chmod 600 %s", read.Mode.Perm(), file))
	}
	return nil
}

// openTo returns the part of the mode that lets others in than the owner and those that an orchestrator lets in on purpose.
func openTo(file string, read readFile, credentials string) fs.FileMode {
	open, dir := read.Mode.Perm()&0o077, filepath.Dir(filepath.Clean(file))
	switch {
	case credentials != "" && dir == filepath.Clean(credentials):
		open &^= 0o070 // systemd lets the service in by an ACL, whose mask shows as group bits
	case secretsMount(dir):
		open &^= 0o044 // Docker mounts secrets as 0444, into a file system that only the container has
	case lentByRoot(read.File, os.Geteuid(), ownGroups()):
		open &^= 0o040
	}
	return open
}

// secretsMount reports that Docker and Podman mount secrets in the folder.
// https://docs.docker.com/engine/swarm/secrets/
func secretsMount(dir string) bool {
	for _, mount := range []string{"/run/secrets", "/var/run/secrets"} {
		if dir == mount || strings.HasPrefix(dir, mount+"/") {
			return true
		}
	}
	return false
}

// lentByRoot reports that a file of root lets a process in by its group, as Kubernetes does with fsGroup. For root itself,
// the group of root is no reason to let it in.
func lentByRoot(f files.File, user int, groups []int) bool {
	return f.UID == 0 && slices.Contains(groups, f.GID) && (user != 0 || f.GID != 0)
}

func ownGroups() []int {
	groups, _ := os.Getgroups()
	return append(groups, os.Getegid())
}

// openSecrets finds the keys in a configuration file that others may read. Unlike a file of keys it
// is often meant to be read, so this is only a warning.
func openSecrets(keys []key, values map[string]any, file string, open fs.FileMode) (found []string) {
	for _, k := range keys {
		if given := values[k.path]; open != 0 && k.secret() && given != nil && fmt.Sprint(given) != "" && fmt.Sprint(given) != "[]" {
			found = append(found, fmt.Sprintf("%s: stands in %s, which others may read; run chmod 600 %s, or put it into a file of its own, %s", k.path, file, file, k.fileKey()))
		}
	}
	return found
}

// sendable reports whether k is visible ASCII, so that it fits a header and no line break slips in.
func sendable(k string) bool {
	return k != "" && !strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' })
}
