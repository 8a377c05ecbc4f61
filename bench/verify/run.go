package verify

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"xpyd/kvparams"
)

// The paths of the two APIs.
const (
	completions = "/v1/completions"
	chat        = "/v1/chat/completions"
)

// run is one verification.
type run struct {
	Options
	http     *http.Client
	model    string
	room     int                // tokens of prompt and answer together; 0: not known
	patience time.Duration      // with engines that are busy
	handed   map[string]float64 // xpyd's handles by their end, before the first request
	legs     *legs              // of the rows that share these requests
}

func newRun(o Options) *run {
	// Connections are not kept. Engines close idle ones after 5 s, and a request on a closed one would
	// look like a failure.
	t := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: o.Insecure}}
	return &run{Options: o, http: &http.Client{Transport: t, Timeout: o.Timeout, CheckRedirect: stay}, model: o.Model, patience: quietWait}
}

// stay has no redirect followed, as the keys are for the URLs that were given.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// through sends a request to the proxy. An error is the proxy's fault.
func (r *run) through(ctx context.Context, path string, body map[string]any) (*answer, error) {
	return r.send(ctx, call{base: r.URL, path: path, key: r.Key, id: "xpyd-verify-" + rand.Text(), body: text(body)})
}

// alone sends a request to a decode engine, which computes the prompt itself. A fresh cache_salt keeps
// the engine from using the blocks that it pulled for the same prompt.
func (r *run) alone(ctx context.Context, path string, body map[string]any) (*answer, error) {
	a, err := r.send(ctx, call{base: r.Decode[0], path: path, key: r.EngineKey, id: "xpyd-verify-alone-" + rand.Text(), body: text(with(body, "cache_salt", rand.Text()))})
	if err != nil {
		return nil, undecided{fmt.Errorf("decode %s alone: %w", r.Decode[0], err)}
	}
	return a, nil
}

// with returns a copy of body with one more member.
func with(body map[string]any, name string, value any) map[string]any {
	more := map[string]any{name: value}
	for k, v := range body {
		if k != name {
			more[k] = v
		}
	}
	return more
}

// The lengths of prompts in words. The longest is long enough for several blocks.
const (
	shortPrompt = 12
	longPrompt  = 300
)

var vocabulary = strings.Fields("the router sends each request to an engine that has room and tells the next one where it can find what was computed so that no work is done twice and every client gets the same answer as before")

// prompt is a text that no engine has in its prefix cache.
func (r *run) prompt(words int) string {
	if r.room > 0 {
		words = min(words, r.room/6)
	}
	said := []string{strings.ToLower(rand.Text()[:8])}
	for range words {
		said = append(said, vocabulary[mrand.IntN(len(vocabulary))])
	}
	return strings.Join(said, " ")
}

// greedy is a request for a few tokens.
func (r *run) greedy(path, prompt string, tokens int) map[string]any {
	body := map[string]any{"model": r.model, "temperature": 0, "seed": 1, "max_tokens": tokens}
	if path == chat {
		body["messages"] = []any{map[string]any{"role": "user", "content": prompt}}
	} else {
		body["prompt"] = prompt
	}
	return body
}

// streamed returns the same request for a stream.
func streamed(body map[string]any) map[string]any {
	return with(with(body, "stream", true), "stream_options", map[string]any{"include_usage": true})
}

// engines asks every engine for health, version and models.
func (r *run) engines(ctx context.Context) Row {
	var versions, problems []string
	models := map[string]int{}
	all := slices.Concat(r.Encode, r.Prefill, r.Decode)
	for _, url := range all {
		var v struct{ Version string }
		err := r.get(ctx, url+"/health", nil)
		if err == nil {
			err = r.get(ctx, url+"/version", &v)
		}
		if err == nil {
			err = r.askModels(ctx, url, models)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", url, err))
			continue
		}
		if !slices.Contains(versions, v.Version) {
			versions = append(versions, v.Version)
		}
	}
	if len(problems) > 0 {
		return bad("%s", strings.Join(problems, "; "))
	}
	return r.judgeEngines(versions, models, len(all))
}

func (r *run) judgeEngines(versions []string, models map[string]int, engines int) Row {
	for name, n := range models {
		if n == engines && (r.Model == "" && (r.model == "" || name < r.model)) {
			r.model = name
		}
	}
	switch {
	case len(versions) > 1:
		return bad("vLLM %s: engines of two versions refuse each other's blocks", strings.Join(versions, " and "))
	case models[r.model] < engines:
		return bad("%d of %d engines list the model %q; give all the same --served-model-name", models[r.model], engines, r.model)
	}
	encode := ""
	if len(r.Encode) > 0 {
		encode = fmt.Sprintf("%d encode, ", len(r.Encode))
	}
	unproven := kvparams.StandingOf(kvparams.Canonical(r.Connector)).Unproven(versions[0])
	if unproven != "" {
		unproven = "; " + unproven
	}
	return good("%s%d prefill and %d decode, vLLM %s, model %s%s", encode, len(r.Prefill), len(r.Decode), versions[0], r.model, unproven)
}

// askModels counts the models that an engine lists.
func (r *run) askModels(ctx context.Context, url string, models map[string]int) error {
	var list struct {
		Data []struct {
			ID   string
			Room int `json:"max_model_len"`
		}
	}
	if err := r.get(ctx, url+"/v1/models", &list); err != nil {
		return err
	}
	for _, m := range list.Data {
		models[m.ID]++
		if m.Room > 0 && (r.room == 0 || m.Room < r.room) {
			r.room = m.Room
		}
	}
	return nil
}

// get asks an engine, or the admin port, for JSON. A nil out wants only the status.
func (r *run) get(ctx context.Context, url string, out any) error {
	b, err := r.fetch(ctx, url)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	return nil
}
