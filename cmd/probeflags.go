package cmd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"

	"xpyd/kvparams"
)

// compareFlags finds engines that would refuse requests that others answer, because they were started with other flags.
// What only a prefill engine refuses, a decode engine serves alone.
func (p *engineProber) compareFlags(ctx context.Context) {
	refused := map[*engine]string{}
	accepts, decodes, roomiest := false, false, (*engine)(nil)
	for _, e := range p.engines {
		if e.role == "encode" || e.health != "ok" || len(e.models) == 0 || !kvparams.ServesAlone(e.dialect, e.version) {
			continue
		}
		why, known := p.refusesTools(ctx, e)
		if known && why == "" {
			accepts, decodes = true, decodes || e.role != "prefill"
		} else if known {
			refused[e] = why
		}
		if e.role != "prefill" && (roomiest == nil || e.room > roomiest.room) {
			roomiest = e
		}
	}
	for _, e := range p.engines {
		why := refused[e]
		switch {
		case why == "" || !accepts:
		case e.role == "prefill" && decodes:
			p.note("%s refuses tools, so requests with tools get no prefill there; start it with the flags of the decode engines: %q", e, why)
		case e.role != "prefill":
			p.fault("%s refuses tools, which other engines take; start it with their flags: %q", e, why)
		}
		if e.role == "prefill" && roomiest != nil && e.room > 0 && e.room < roomiest.room {
			p.note("%s takes %d tokens of prompt and answer, and %s %d, so longer prompts get no prefill there; start both with one --max-model-len", e, e.room, roomiest, roomiest.room)
		}
	}
}

// refusesTools sends one request with a tool that need not be called. why is empty if the engine takes it. An engine that
// refuses chats of any kind tells nothing.
func (p *engineProber) refusesTools(ctx context.Context, e *engine) (why string, known bool) {
	message := map[string]string{"role": "user", "content": "Hi"}
	tool := map[string]any{"type": "function", "function": map[string]any{"name": "none", "parameters": map[string]string{"type": "object"}}}
	body, err := json.Marshal(map[string]any{"model": e.models[0], "max_tokens": 1, "messages": []any{message}, "tools": []any{tool}})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	_, err = p.postTo(ctx, e.url, kvparams.Chat.Path(), kvparams.Segments{body}, "xpyd-check-"+rand.Text())
	if err == nil {
		return "", true
	}
	var answered *statusError
	if errors.As(err, &answered) && answered.status == http.StatusBadRequest {
		flag, _ := kvparams.RefusingFlag([]byte(answered.message))
		return answered.message, flag != ""
	}
	return "", false
}
