package engines

import (
	"cmp"

	"xpyd/kvparams"
	"xpyd/router"
)

// Covers fails if the blocks of a handle that p has given cannot hold its prompt, because d would die of it. known is false if
// nothing says how much a block of p holds. If p's metrics do not, d's do: with NIXL, the size of decode's blocks is a
// multiple of that of prefill's (block_size_ratio in vLLM's kv_connector/utils.py). If neither's do, the handle is
// compared with one of p's that a decode engine has used.
func (s *Set) Covers(a kvparams.Answer, p, d *router.Backend) (known bool, err error) {
	size := cmp.Or(p.BlockTokens(), d.BlockTokens())
	if size > 0 {
		return true, a.Covers(size, kvparams.Extent{})
	}
	var used kvparams.Extent
	if e := s.get(p); e != nil && e.used.Load() != nil {
		used = *e.used.Load()
	}
	return used != kvparams.Extent{}, a.Covers(0, used)
}

// Used notes the extent of a handle of p with which a decode engine has answered.
func (s *Set) Used(p *router.Backend, x kvparams.Extent) {
	e := s.get(p)
	if e == nil {
		return
	}
	for was := e.used.Load(); was == nil || x.TellsMoreThan(*was); was = e.used.Load() {
		if e.used.CompareAndSwap(was, &x) {
			return
		}
	}
}
