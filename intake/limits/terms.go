// Package limits knows the keys that clients show: the name of each, what its holder may use, and how
// much of that in a minute. A refusal says when to come back.
package limits

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
)

// Terms are what the holder of a name may do. A limit of 0 is none.
type Terms struct {
	Name string
	// Hashes are the SHA-256 of its keys. There are several while one key replaces another.
	Hashes [][sha256.Size]byte
	// Models are the models that it may use. One that ends in * stands for all that begin so. With
	// none it may use all.
	Models            []string
	InFlight          int
	RequestsPerMinute int
	TokensPerMinute   int // of prompts and answers together
	// Priority says that its requests may name a priority. It goes on to the engines, and decides in
	// xpyd's own queue.
	Priority bool
	// CacheSalt keeps its prompts apart from those of others in the engines' caches, see Account.Salt.
	CacheSalt bool
}

// Plain returns the terms of keys without a name or a limit. They are named by their places.
func Plain(keys []string) []Terms {
	all := make([]Terms, len(keys))
	for i, key := range keys {
		all[i] = Terms{Name: fmt.Sprintf("key-%d", i+1), Hashes: [][sha256.Size]byte{sha256.Sum256([]byte(key))}, Priority: true}
	}
	return all
}

// allows reports whether the terms are for this model. An engine takes a request without a model for
// its own, whatever that is, so terms with models are not for it.
func (t *Terms) allows(model []byte) bool {
	if len(t.Models) == 0 {
		return true
	}
	for _, m := range t.Models {
		begin, open := strings.CutSuffix(m, "*")
		if string(model) == m || open && len(model) > 0 && bytes.HasPrefix(model, []byte(begin)) {
			return true
		}
	}
	return false
}

// Narrow returns an answer of /v1/models without the models that the account may not use.
func (a *Account) Narrow(list []byte) []byte {
	if a == nil || len(a.terms.Load().Models) == 0 {
		return list
	}
	var all struct {
		Object string            `json:"object"`
		Data   []json.RawMessage `json:"data"`
	}
	if json.Unmarshal(list, &all) != nil {
		return list[:0:0] // no list of xpyd's own making
	}
	kept := make([]json.RawMessage, 0, len(all.Data))
	for _, entry := range all.Data {
		var model struct{ ID string }
		if json.Unmarshal(entry, &model) == nil && a.terms.Load().allows([]byte(model.ID)) {
			kept = append(kept, entry)
		}
	}
	all.Data = kept
	narrow, _ := json.Marshal(all) // of valid JSON
	return narrow
}
