package limits

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// saltBytes is how long a salt is before it is written in hex, which every engine and cache takes.
const saltBytes = 16

// Salt returns the cache_salt of the account's prompts, or "" if they share the engines' caches with those of others. own is
// the client's own salt, or nil. It keeps prompts of the account apart from one another, and never reaches a prompt of
// another account. A salt does not show its key, and nobody can make it who does not know the key or its hash. It is the
// same in every process, because replicas share engines.
func (a *Account) Salt(own []byte) string {
	if a == nil {
		return ""
	}
	t := a.terms.Load()
	if !t.CacheSalt || len(t.Hashes) == 0 {
		return ""
	}
	salt := keyed(t.Hashes[0][:], "xpyd cache_salt", []byte(t.Name))
	if own != nil {
		salt = keyed(salt, "own", own)
	}
	return hex.EncodeToString(salt[:saltBytes])
}

// Salted reports whether Salt returns one.
func (a *Account) Salted() bool { return a != nil && a.terms.Load().CacheSalt }

func keyed(key []byte, use string, data []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(append(append([]byte(use), 0), data...))
	return h.Sum(nil)
}
