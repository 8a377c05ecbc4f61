package limits

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"xpyd/intake/gate"
)

// Book has the accounts of all keys. Replace changes them while requests run. It is safe for concurrent
// use.
type Book struct {
	inFlight int // the limit of an account that has none of its own
	page     atomic.Pointer[page]

	mu       sync.Mutex // one Replace at a time
	opened   int        // accounts so far
	accounts map[string]*Account
}

// page is one state of the book.
type page struct {
	ring    *gate.Keyring
	holders []*Account // of the keys, by their slots in ring
}

// NewBook opens the accounts of all terms. Of terms with the same key the last count. inFlight is for
// terms that have no such limit.
func NewBook(all []Terms, inFlight int) *Book {
	b := &Book{inFlight: inFlight, accounts: map[string]*Account{}}
	b.write(all)
	return b
}

// Required reports whether clients must show a key.
func (b *Book) Required() bool { return b.page.Load().ring.Required() }

// Holder returns the account of the key that an Authorization value shows. Where no keys are set it is
// nil. ok is false if a key is required and none of them is shown.
func (b *Book) Holder(authorization []byte) (a *Account, ok bool) {
	p := b.page.Load()
	if !p.ring.Required() {
		return nil, true
	}
	slot, ok := p.ring.Slot(authorization)
	if !ok {
		return nil, false
	}
	return p.holders[slot], true
}

// ErrFirstOrLast refuses new terms that would open or close the door for clients without a key.
var ErrFirstOrLast = errors.New("api_keys: the first key cannot come, and the last cannot go, without a restart")

// Change says what Replace did, by names.
type Change struct{ Joined, Left, Changed []string }

// None reports that nothing has changed.
func (c Change) None() bool { return len(c.Joined)+len(c.Left)+len(c.Changed) == 0 }

// Fits returns an error if Replace cannot put these terms in force.
func (b *Book) Fits(all []Terms) error {
	if (len(all) > 0) != b.Required() {
		return ErrFirstOrLast
	}
	return nil
}

// Replace puts new terms, which must fit, in force for the requests that follow. An account whose name
// stays keeps what it has under way and what is left to it. inFlight is that of NewBook.
func (b *Book) Replace(all []Terms, inFlight int) Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight = inFlight
	return b.write(all)
}

// write makes the page of these terms.
func (b *Book) write(all []Terms) (change Change) {
	before := b.accounts
	b.accounts = make(map[string]*Account, len(all))
	holders := map[[sha256.Size]byte]*Account{}
	var hashes [][sha256.Size]byte
	for _, t := range all {
		if t.InFlight == 0 {
			t.InFlight = b.inFlight
		}
		a, stays := before[t.Name]
		switch {
		case !stays:
			b.opened++
			a = &Account{ID: b.opened, Name: t.Name}
			change.Joined = append(change.Joined, t.Name)
		case !reflect.DeepEqual(*a.terms.Load(), t):
			change.Changed = append(change.Changed, t.Name)
		}
		a.terms.Store(&t)
		b.accounts[t.Name] = a
		for _, hash := range t.Hashes {
			if _, twice := holders[hash]; !twice {
				hashes = append(hashes, hash)
			}
			holders[hash] = a
		}
	}
	for name := range before {
		if b.accounts[name] == nil {
			change.Left = append(change.Left, name)
		}
	}
	slices.Sort(change.Left)
	p := &page{ring: gate.NewHashring(hashes)}
	for _, hash := range hashes {
		p.holders = append(p.holders, holders[hash])
	}
	b.page.Store(p)
	return change
}
