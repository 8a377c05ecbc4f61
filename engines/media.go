package engines

import (
	"slices"
	"sync"

	"xpyd/router"
)

// mediaKept is how many images, sounds and videos are remembered at least. The next ones push out the oldest.
const mediaKept = 1 << 15

// seenMedia is which backends have had an image, sound or video under its uuid. Their engines keep it in a cache, so
// that a later request may give the uuid alone.
type seenMedia struct {
	mu         sync.Mutex
	young, old map[uint64][]*router.Backend
}

// SawMedia notes that b's engine has had what the hashes of uuids stand for.
func (s *Set) SawMedia(b *router.Backend, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	m := &s.media
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		had, young := m.young[id]
		if !young {
			had = slices.Clone(m.old[id])
		}
		if young && slices.Contains(had, b) {
			continue
		}
		if len(m.young) >= mediaKept || m.young == nil {
			m.young, m.old = map[uint64][]*router.Backend{}, m.young
		}
		if !slices.Contains(had, b) {
			had = append(had, b)
		}
		m.young[id] = had
	}
}

// WithoutMedia returns those of the pool whose engines have not had all of it. If none has that is not down, it returns no
// one.
func (s *Set) WithoutMedia(pool []*router.Backend, ids []uint64) (lack []*router.Backend) {
	m := &s.media
	m.mu.Lock()
	defer m.mu.Unlock()
	some := false
	for _, b := range pool {
		if slices.ContainsFunc(ids, func(id uint64) bool { return !slices.Contains(m.young[id], b) && !slices.Contains(m.old[id], b) }) {
			lack = append(lack, b)
		} else if b.State() != router.Down {
			some = true
		}
	}
	if !some {
		return nil
	}
	return lack
}

// forget forgets all about an engine that has begun anew, or has left.
func (m *seenMedia) forget(b *router.Backend) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range []map[uint64][]*router.Backend{m.young, m.old} {
		for id, had := range all {
			if slices.Contains(had, b) {
				all[id] = slices.DeleteFunc(slices.Clone(had), func(o *router.Backend) bool { return o == b })
			}
		}
	}
}
