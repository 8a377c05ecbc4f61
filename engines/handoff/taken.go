package handoff

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/router"
)

// Failed notes how a request with the handle has failed: with err, or with an answer whose status is not 200. If no
// connection was made, no D has seen the handle.
func (h *Handoff) Failed(err error, status int, answer []byte) {
	switch {
	case upstream.IsDial(err):
		h.Unsent()
	case h.state == handleSent && !begun(err, status, answer):
		h.state = handleSpared
	default:
		h.failed, h.aborts = true, aborts(err)
	}
}

// begun reports whether a D may have begun with a request that has failed so. It did not if it never had the whole
// request, or has refused it. What stands in front of a D says 503 too, also where D had the request and the connection
// to it broke: that is no refusal of D's.
func begun(err error, status int, answer []byte) bool {
	var ue *upstream.Error
	if errors.As(err, &ue) && ue.Stage <= upstream.StageWrite {
		return false
	}
	if status == fasthttp.StatusServiceUnavailable {
		return !engineSpeaks(answer)
	}
	return status < 400 || status >= 500
}

// engineSpeaks reports whether the answer of a 503 is vLLM's. It says 503 to a completion only before it begins with it, in two
// forms of 0.32.0: while it scales (elastic_ep/middleware.py), and over a limit of its queue (async_llm.check_admission). What
// stands in front of it may speak JSON too, so nothing else counts.
func engineSpeaks(answer []byte) bool {
	var said map[string]any // has names as they are spelt
	if json.Unmarshal(answer, &said) != nil {
		return false
	}
	if e, ok := said["error"].(map[string]any); ok {
		_, ok = e["message"].(string)
		code, coded := e["code"]
		ok = ok && (code == float64(fasthttp.StatusServiceUnavailable) || !coded && said["type"] == "error") // the latter on /v1/messages
		return ok && e["type"] == "Service Unavailable"
	}
	return said["error"] == "The model is currently scaling. Please try again later."
}

// aborts reports whether a D that lives aborts a request with which it may have begun. A kept connection that breaks
// without a word may have been closed before D read the request.
func aborts(err error) bool {
	var ue *upstream.Error
	return errors.As(err, &ue) && !(ue.BrokeOff() && ue.Reused && ue.Silent)
}

// once reports that only one D may ever begin with the handle. Where P writes the blocks into D, a second one would
// wait for blocks that P has written already. A drain of them would wait without a limit, and D would keep
// its own blocks for that. P's blocks wait for the end of their lease at most.
func (h *Handoff) once() bool {
	return h.waits() && h.k.cfg.Dialects.Of(h.from.Connector).Reclaim() == kvparams.ReclaimDrain
}

// taken is the D that may have begun with such a handle; nil if there is none.
func (h *Handoff) taken() *router.Backend {
	if h.state != handleSent || !h.once() {
		return nil
	}
	return h.at
}

// endTaken ends a handle with which D may have begun. There is nothing to ask of anybody: P writes the blocks and frees
// them, or it frees them at the end of their lease.
func (j *release) endTaken(ctx context.Context) {
	pause(ctx, releaseSettle) // a D that dies breaks off before it is seen to be gone
	d := j.taken
	lives := !d.RestartedAfter(j.issued) && !j.k.cfg.Gone(d)
	if lives {
		j.k.warnKept(j.from, d, j.issued, j.blocks)
	}
	switch {
	case j.gone():
		j.end(Lost)
	case j.used, j.aborts && lives:
		j.end(Burnt)
	default:
		j.lost(OrphanConnector)
	}
}
