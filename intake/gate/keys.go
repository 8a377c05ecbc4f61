package gate

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"

	"xpyd/netio"
)

// Keyring holds the keys that clients may show, as hashes only. It is immutable.
type Keyring struct {
	// slots finds a hash without a comparison of keys. The time of a look-up may tell an attacker
	// something of the hash of a guess, but never of a key.
	slots  map[[sha256.Size]byte]int
	hashes [][sha256.Size]byte
}

// NewKeyring takes the clear keys and keeps none of them. Without keys everybody may enter.
func NewKeyring(keys []string) *Keyring {
	hashes := make([][sha256.Size]byte, len(keys))
	for i, key := range keys {
		hashes[i] = sha256.Sum256([]byte(key))
	}
	return NewHashring(hashes)
}

// NewHashring makes a Keyring of the hashes of keys. The slot of a key is the place of its hash, if no
// hash is there twice.
func NewHashring(hashes [][sha256.Size]byte) *Keyring {
	k := &Keyring{slots: make(map[[sha256.Size]byte]int, len(hashes))}
	for _, hash := range hashes {
		if _, ok := k.slots[hash]; !ok {
			k.slots[hash] = len(k.hashes)
			k.hashes = append(k.hashes, hash)
		}
	}
	return k
}

// Allow says whether an Authorization value shows one of the keys. The value is "Bearer <key>", with
// the scheme in either case. A missing or malformed value costs what a wrong key costs: one hash, one
// look-up, one comparison. An empty key is never right.
func (k *Keyring) Allow(authorization []byte) bool {
	if len(k.hashes) == 0 {
		return true
	}
	_, ok := k.Slot(authorization)
	return ok
}

// Slot returns the number of the key that an Authorization value shows.
func (k *Keyring) Slot(authorization []byte) (int, bool) {
	key := bearer(authorization)
	hash := sha256.Sum256(key)
	slot, found := k.slots[hash]
	// slot is 0 for an unknown hash, so the comparison is made all the same.
	same := subtle.ConstantTimeCompare(hash[:], k.hashes[slot][:]) == 1
	return slot, found && same && len(key) > 0
}

// bearer returns the credential of a Bearer Authorization value, or nil for any other value.
func bearer(authorization []byte) []byte {
	scheme, key, _ := bytes.Cut(authorization, []byte(" "))
	if !netio.EqualFold(scheme, "bearer") {
		return nil
	}
	return bytes.Trim(key, " ")
}

// Required says whether clients must show a key.
func (k *Keyring) Required() bool { return len(k.hashes) > 0 }
