package proxy

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/netio"
)

// keyring holds the keys that clients may show, as hashes only. It is immutable.
type keyring struct {
	// slots finds a hash without comparing any key: the time of a look-up tells an
	// attacker something of the hash of a guess, never of a key.
	slots  map[[sha256.Size]byte]int
	hashes [][sha256.Size]byte
}

// newKeyring takes the clear keys; it keeps none. No keys: everybody may enter.
func newKeyring(keys []string) *keyring {
	k := &keyring{slots: make(map[[sha256.Size]byte]int, len(keys))}
	for _, key := range keys {
		hash := sha256.Sum256([]byte(key))
		if _, ok := k.slots[hash]; !ok {
			k.slots[hash] = len(k.hashes)
			k.hashes = append(k.hashes, hash)
		}
	}
	return k
}

// allow says whether an Authorization value ("Bearer <key>", the scheme in either
// case) shows one of the keys. A missing or malformed value costs what a wrong key
// costs: one hash, one look-up, one comparison. An empty key is never right.
func (k *keyring) allow(authorization []byte) bool {
	if len(k.hashes) == 0 {
		return true
	}
	_, ok := k.slot(authorization)
	return ok
}

// slot is the number of the key that an Authorization value shows.
func (k *keyring) slot(authorization []byte) (int, bool) {
	key := bearer(authorization)
	hash := sha256.Sum256(key)
	slot, found := k.slots[hash]
	// slot is 0 for an unknown hash, so that this comparison happens all the same.
	same := subtle.ConstantTimeCompare(hash[:], k.hashes[slot][:]) == 1
	return slot, found && same && len(key) > 0
}

// bearer is the credential of a Bearer Authorization value; nil for another one.
func bearer(authorization []byte) []byte {
	scheme, key, _ := bytes.Cut(authorization, []byte(" "))
	if !netio.EqualFold(scheme, "bearer") {
		return nil
	}
	return bytes.Trim(key, " ")
}

// required says whether clients must show a key.
func (k *keyring) required() bool { return len(k.hashes) > 0 }

// identify says who a client is. It costs nothing where neither limits.client_in_flight nor
// limits.client_share limits clients; by default the latter does.
func (s *Server) identify(conn *netio.Conn, h *fasthttp.RequestHeader) budget.Client {
	if !s.clients.Limited() && s.cfg.Limits.ClientShare >= 1 {
		return budget.Client{}
	}
	if s.keys.required() {
		slot, _ := s.keys.slot(h.Peek("Authorization"))
		return budget.Client{Key: slot + 1}
	}
	return budget.Client{IP: conn.IP()}
}
