package handoff

import (
	"encoding/json"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
	"xpyd/router"
)

// allReject reports that every decode backend with the connector of from frees on rejection, so that no copy
// of the request is needed for a drain.
func allReject(snap *router.Snapshot, from *router.Backend) bool {
	for _, b := range snap.Backends(router.Decode) {
		if b.Connector == from.Connector && !rejectFrees(b.Version()) {
			return false
		}
	}
	return true
}

// rejectFrees reports that a rejection by this version frees P's blocks. Since 0.32 a vLLM that
// rejects a request with a handle tells P to free its blocks, and survives if P cannot be reached. An
// unknown version counts as one that does not.
func rejectFrees(version string) bool { return kvparams.Since(version, 32) }

// engineRefused reports a refusal by the engine's own handler, which is the one that tells P. P never hears of a
// refusal by the request model or the server in front of it, whose type is "Bad Request", or none.
func engineRefused(status int, answer []byte) bool {
	var e struct {
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &e) != nil {
		return false
	}
	switch status {
	case fasthttp.StatusBadRequest:
		return e.Error.Type != "" && e.Error.Type != "Bad Request"
	case fasthttp.StatusNotFound: // the model was unloaded
		return e.Error.Type == "NotFoundError"
	}
	return false
}
