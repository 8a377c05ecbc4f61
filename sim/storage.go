package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// whole is how many blocks of a prompt a file holds. vLLM leaves the last token to be computed, and
// keeps only full blocks of the rest.
func (k kv) whole(blockSize int) int { return max(k.tokens-2, 0) / blockSize }

// place is where the KV of the first blocks of u lies, in a folder that all engines see; "" for nowhere. With
// ExampleConnector the key is made of the tokens alone. KV of other weights under the same tokens is taken for
// the prompt's. Other engines are told a ticket, and without one they neither look nor store.
func (g *generation) place(u *unit, blocks int) string {
	o := g.c.o
	if o.Connector.has(traitTicket) {
		if g.h.ticket == "" {
			return ""
		}
		return filepath.Join(o.Storage, fmt.Sprintf("%s-%d.json", url.PathEscape(g.h.ticket), u.index))
	}
	keys := blockContents(0, u.prompt.idsFrom(0)[:blocks*o.BlockSize], o.BlockSize)
	return filepath.Join(o.Storage, fmt.Sprintf("%016x.json", keys[blocks-1]))
}

// loadKV returns the KV of so many blocks from its place, or nil if it is not there.
func loadKV(place string, blocks int) []uint64 {
	raw, err := os.ReadFile(place)
	var contents []uint64
	if err != nil || json.Unmarshal(raw, &contents) != nil || len(contents) != blocks {
		return nil
	}
	return contents
}

// storeKV files KV at its place. A reader finds a whole file or none.
func storeKV(place string, contents []uint64) error {
	raw, err := json.Marshal(contents)
	if err != nil {
		return err
	}
	part := place + "." + randomHex(4)
	if err := os.WriteFile(part, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(part, place)
}

// fetch looks for the KV of each prompt of r in the store. It returns false if the request has ended.
func (g *generation) fetch(ctx context.Context, r *reservation) bool {
	o := g.c.o
	if !o.connector() || !o.stores() {
		return true
	}
	blocks := 0
	for i, u := range g.units {
		s, n := r.seats[i], u.kv.whole(o.BlockSize)
		if n <= s.hits {
			continue
		}
		contents := loadKV(g.place(u, n), n)
		if contents == nil {
			continue
		}
		s.fetched = n - s.hits
		blocks += s.fetched
		g.c.ledger.pulled(r, i, contents[s.hits:])
		g.c.ledger.count(func(l *Ledger) { l.Loaded++ })
		g.c.metrics.add("external_prefix_cache_hits_total", s.fetched*o.BlockSize)
		g.c.metrics.add("prompt_tokens_cached_by_source_total/external_unspecified", s.fetched*o.BlockSize)
		g.checkKV(u, contents)
	}
	return !o.fragile() || blocks == 0 || g.loadFragile(ctx, r, blocks)
}

// loadFragile takes the time of the load of so many blocks. LMCache 0.5.6 tells vLLM of a load although the request has
// been aborted meanwhile, and an assertion of vLLM's then ends the engine.
func (g *generation) loadFragile(ctx context.Context, r *reservation, blocks int) bool {
	g.c.pullTime(blocks)
	if ctx.Err() == nil && !g.x.gone() {
		return true
	}
	g.c.ledger.finish(r)
	if g.left() {
		g.die("dead")
	}
	return false
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
		if place := g.place(u, n); place != "" && storeKV(place, u.kv.contents[:n]) == nil {
			g.c.ledger.count(func(l *Ledger) { l.Stored++ })
		}
	}
}
