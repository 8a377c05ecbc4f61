package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// storage is a folder in which engines of ExampleConnector leave the KV of prompts, a file for each.
// As there, the key is made of the tokens alone. KV of other weights under the same tokens is taken
// for the prompt's.
type storage struct{ folder string }

// whole is how many blocks of a prompt a file holds. vLLM leaves the last token to be computed, and
// keeps only full blocks of the rest.
func (k kv) whole(blockSize int) int { return max(k.tokens-2, 0) / blockSize }

func (s storage) path(p prompt, blocks, blockSize int) string {
	keys := blockContents(0, p.idsFrom(0)[:blocks*blockSize], blockSize)
	return filepath.Join(s.folder, fmt.Sprintf("%016x.json", keys[blocks-1]))
}

// load returns the KV of the first blocks of a prompt, or nil if it is not there.
func (s storage) load(p prompt, blocks, blockSize int) []uint64 {
	raw, err := os.ReadFile(s.path(p, blocks, blockSize))
	var contents []uint64
	if err != nil || json.Unmarshal(raw, &contents) != nil || len(contents) != blocks {
		return nil
	}
	return contents
}

// store files the KV of the first blocks of a prompt. A reader finds a whole file or none.
func (s storage) store(p prompt, contents []uint64, blockSize int) error {
	raw, err := json.Marshal(contents)
	if err != nil {
		return err
	}
	path := s.path(p, len(contents), blockSize)
	part := path + "." + randomHex(4)
	if err := os.WriteFile(part, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// fetch looks for the KV of each prompt of r in the store.
func (g *generation) fetch(r *reservation) {
	o := g.c.o
	if !o.connector() || !o.stores() {
		return
	}
	for i, u := range g.units {
		s, n := r.seats[i], u.kv.whole(o.BlockSize)
		if n <= s.hits {
			continue
		}
		contents := (storage{o.Storage}).load(u.prompt, n, o.BlockSize)
		if contents == nil {
			continue
		}
		s.fetched = n - s.hits
		g.c.ledger.pulled(r, i, contents[s.hits:])
		g.c.ledger.count(func(l *Ledger) { l.Loaded++ })
		g.c.metrics.add("external_prefix_cache_hits_total", s.fetched*o.BlockSize)
		g.checkKV(u, contents)
	}
}

// file stores the KV that the engine has computed.
func (g *generation) fileKV(r *reservation) {
	o := g.c.o
	if !o.connector() || !o.stores() {
		return
	}
	for i, u := range g.units {
		n := u.kv.whole(o.BlockSize)
		if n == 0 || r.seats[i].fetched > 0 {
			continue
		}
		if (storage{o.Storage}).store(u.prompt, u.kv.contents[:n], o.BlockSize) == nil {
			g.c.ledger.count(func(l *Ledger) { l.Stored++ })
		}
	}
}
