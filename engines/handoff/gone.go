package handoff

import (
	"context"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

// Gone reports whether P has restarted since it gave the handle, so that its blocks are gone. It is false for
// connectors whose D finds this out by itself and fails.
func (h *Handoff) Gone() bool { return h.waits() && h.from.RestartedAfter(h.issued) }

func (h *Handoff) waits() bool { return kvparams.Waits(h.k.cfg.Dialects.Of(h.from.Connector)) }

// Watch arranges that f is called when P goes down while a D may be loading its blocks, or when P restarts and D
// would not notice.
func (h *Handoff) Watch(w *router.Watch, f func()) {
	if h.waits() {
		w.OnGone(h.from, h.issued, f)
	} else {
		w.On(h.from, f)
	}
}

// Cut ends a handle after xpyd has cut off its D. A D that has the whole request aborts it, which frees
// P's blocks.
func (h *Handoff) Cut(d *router.Backend) {
	if h.Live() && h.waits() {
		h.k.warnKept(h.from, d, h.issued, h.handle.Blocks)
	}
	h.End(Burnt)
}

// warnKept logs that D may keep blocks of its own for a P that is gone.
func (k *Keeper) warnKept(from, d *router.Backend, issued time.Time, blocks int) {
	if from.State() == router.Down || from.RestartedAfter(issued) {
		k.cfg.Log.Warn().Str("prefill", from.URL).Str("decode", d.URL).Int("blocks", blocks).
			Msg("if the prefill engine has died, the decode engine keeps blocks that waited for it until it is restarted")
	}
}

// gone reports that j's blocks are gone with P, where a D would wait for them. Nothing waits for their lease then.
func (j *release) gone() bool { return j.waits && j.from.RestartedAfter(j.issued) }

// sourceDown reports that a D that is asked would wait for a P that is down, so that none is.
func (j *release) sourceDown() bool { return j.waits && j.from.State() == router.Down }

// awaitSource waits for such a P. It reports false if that has taken all the time there is.
func (j *release) awaitSource(ctx context.Context) bool {
	for j.sourceDown() && !j.gone() && ctx.Err() == nil {
		pause(ctx, releasePause)
	}
	return ctx.Err() == nil
}
