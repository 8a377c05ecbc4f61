package router

import (
	"fmt"
	"slices"
	"strings"
)

// A decode engine takes blocks only from a prefill engine of its own vLLM release: the handshake compares a hash of it
// (https://github.com/vllm-project/vllm/pull/29503). So while a prefill and a decode backend of one release are
// up, only backends of one release make pairs. If no two are, all do, as releases may differ in name alone.

// wire is what the engines of a pair have in common. An empty release is not known, and goes with any.
type wire struct{ connector, release string }

func wireOf(b *Backend) wire { return wire{b.Connector, b.Version()} }

// suits reports whether engines with the two can hand blocks over.
func (k wire) suits(o wire) bool {
	return k.connector == o.connector && (k.release == o.release || k.release == "" || o.release == "")
}

// withWire is all with k, once.
func withWire(all []wire, k wire) []wire {
	if slices.Contains(all, k) {
		return all
	}
	return append(all, k)
}

// anyRelease are the connectors of the wires.
func anyRelease(wires []wire) (loose []wire) {
	for _, k := range wires {
		loose = withWire(loose, wire{connector: k.connector})
	}
	return loose
}

// SetVersion records the engine's /version, or "" if it is not known.
func (b *Backend) SetVersion(v string) {
	if b.Version() == v {
		return
	}
	r := b.router
	r.mu.Lock()
	eachRole(b, func(x *Backend) { x.version.Store(&v) })
	r.releases.Store(r.Snapshot().mixesReleases())
	r.mu.Unlock()
	r.serveAll() // a request may wait for a backend of that release
}

// mixesReleases reports whether the backends of both pools are known to have several releases.
func (s *Snapshot) mixesReleases() bool {
	first := ""
	for _, p := range [...]*pool{s.prefill, s.decode} {
		for _, m := range p.members {
			v := m.Version()
			if first != "" && v != "" && v != first {
				return true
			}
			if v != "" {
				first = v
			}
		}
	}
	return false
}

// severalReleases is mixesReleases of the current snapshot, for the hot path.
func (s *Snapshot) severalReleases() bool { return s.router.releases.Load() }

// severalWires reports whether some backends make no pair.
func (s *Snapshot) severalWires() bool { return s.SeveralConnectors() || s.severalReleases() }

// mate is the backend of the request's other leg, or nil before there is one.
func (w *Want) mate() *Backend {
	if w.Peer == nil && w.Like != nil && w.Like.Role != w.Role {
		return w.Like
	}
	return w.Peer
}

// strict reports whether only backends of one release make pairs for the request.
func (s *Snapshot) strict(w *Want) bool { return s.severalReleases() && s.matched(w) }

// matched reports whether a prefill and a decode backend that may serve the request are not down, and of one wire.
func (s *Snapshot) matched(w *Want) bool {
	for _, p := range s.serving(Prefill, w).backends {
		if p.usable() && slices.ContainsFunc(s.serving(Decode, w).backends, func(d *Backend) bool {
			return d.usable() && wireOf(d).suits(wireOf(p))
		}) {
			return true
		}
	}
	return false
}

// pairable reports of two backends whether they make pairs at the moment, whatever their models are.
func (s *Snapshot) pairable() func(Pair) bool {
	strict := s.strict(&Want{})
	return func(x Pair) bool {
		p, d := wireOf(x.Prefill), wireOf(x.Decode)
		return !SharesEngine(x.Prefill, x.Decode) && (p.suits(d) || !strict && p.connector == d.connector)
	}
}

// Pairable reports whether the two backends make pairs at the moment, whatever their models are.
func (s *Snapshot) Pairable(x Pair) bool { return s.pairable()(x) }

// Mismatch says that backends of different releases are paired, because for some model no prefill and decode backend of one
// release are up. It is empty if that is not so.
func (s *Snapshot) Mismatch() string {
	if !s.Splits() || !s.severalReleases() {
		return ""
	}
	wants := []Want{{}}
	if l := s.decode.models.Load(); l.mixed() {
		wants = nil
		for id := range l.ids {
			wants = append(wants, Want{Model: []byte(id)})
		}
	}
	slices.SortFunc(wants, func(a, b Want) int { return slices.Compare(a.Model, b.Model) })
	for _, w := range wants {
		prefill, decode := releasesOf(s.serving(Prefill, &w)), releasesOf(s.serving(Decode, &w))
		if len(prefill) > 0 && len(decode) > 0 && !s.OnDecodeOnly(w.Model) && !s.matched(&w) {
			return fmt.Sprintf("no prefill and decode engine of one release are up (prefill: %s; decode: %s), so engines of different "+
				"releases are paired: prompts are computed twice, or fail", strings.Join(prefill, ", "), strings.Join(decode, ", "))
		}
	}
	return ""
}

// releasesOf are those of the backends of p that are not down, in order.
func releasesOf(p *pool) (all []string) {
	for _, b := range p.backends {
		if b.usable() {
			all = append(all, b.Version())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
