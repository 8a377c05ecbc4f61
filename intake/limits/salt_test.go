package limits

import (
	"strings"
	"testing"
)

// A salt is that of a name and its first key, and a client's own salt never becomes another's.
func TestSalt(t *testing.T) {
	salted := func(t *Terms) { t.CacheSalt = true }
	b := NewBook([]Terms{holder("a", salted, "k-a", "k-next"), holder("b", salted, "k-b"), holder("c", nil, "k-c")}, 0)
	account := func(key string) *Account {
		a, _ := b.Holder(shown(key))
		return a
	}
	a, other := account("k-a"), account("k-b")
	salt := a.Salt(nil)
	if len(salt) != 32 || strings.Trim(salt, "0123456789abcdef") != "" {
		t.Errorf("the salt is %q", salt)
	}
	if account("k-next").Salt(nil) != salt {
		t.Error("two keys of one holder have two salts")
	}
	if again, _ := NewBook([]Terms{holder("a", salted, "k-a")}, 0).Holder(shown("k-a")); again.Salt(nil) != salt {
		t.Error("another process has another salt")
	}
	seen := map[string]bool{salt: true}
	for _, s := range []string{other.Salt(nil), other.Salt([]byte(salt)), other.Salt([]byte("a")), a.Salt([]byte("a")), a.Salt([]byte(""))} {
		if seen[s] {
			t.Errorf("two have the salt %s", s)
		}
		seen[s] = true
	}
	var nobody *Account
	if account("k-c").Salt([]byte("own")) != "" || nobody.Salt(nil) != "" || nobody.Salted() || account("k-c").Salted() {
		t.Error("a salt for a key that is to have none")
	}
}
