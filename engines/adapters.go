package engines

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"xpyd/netio/tlsconf"
	"xpyd/router"
)

// adapter is a LoRA adapter that engines are to load. Without a path they are to unload it.
type adapter struct{ name, path string }

// AdapterDone is what became of an adapter on one engine.
type AdapterDone struct {
	URL   string `json:"url"`
	Error string `json:"error,omitempty"`
}

// Well counts the engines that have done it.
func Well(all []AdapterDone) (n int) {
	for _, d := range all {
		if d.Error == "" {
			n++
		}
	}
	return n
}

// adapterWithin bounds how long an engine may load an adapter.
const adapterWithin = 25 * time.Second

// Adapters has engines load and unload adapters.
type Adapters struct{ s *Set }

// AdaptersOf are those of the engines of s.
func AdaptersOf(s *Set) Adapters { return Adapters{s} }

// Set loads an adapter on all engines of its model, of all pools, or unloads it if path is empty. An engine that has it
// already, or does not have it any more, is no error. model may be empty if all engines have the same one.
func (x Adapters) Set(ctx context.Context, name, path, model string) ([]AdapterDone, error) {
	s, a := x.s, adapter{name, path}
	targets, err := x.targets(model)
	if err != nil {
		return nil, err
	}
	done := make([]AdapterDone, len(targets))
	var wg sync.WaitGroup
	for i, b := range targets {
		wg.Go(func() {
			done[i] = AdapterDone{b.Base(), "an error within xpyd, see its log"}
			s.cfg.Guard(func() { done[i].Error = x.at(ctx, b, a) })
		})
	}
	wg.Wait()
	for _, e := range s.all() { // their lists of models have changed
		e.unlisted.Store(true)
		signal(e.wake)
	}
	return done, nil
}

// targets is one backend of each engine that serves the model.
func (x Adapters) targets(model string) (targets []*router.Backend, err error) {
	snap := x.s.cfg.Router.Snapshot()
	seen := map[string]bool{}
	var common []string
	for _, role := range router.Roles() {
		for _, m := range snap.Members(role) {
			b := m.Backend
			e := x.s.get(b)
			if e == nil || role == router.Encode || seen[b.Base()] {
				continue
			}
			seen[b.Base()] = true
			list := e.models.Load()
			if list == nil || len(list.Data) == 0 {
				return nil, fmt.Errorf("which models %s serves is not known yet, so nothing was done; try again once it is up, or remove it", b.Base())
			}
			bases := list.bases()
			switch {
			case model != "" && !slices.Contains(bases, model):
				continue
			case model == "" && common != nil && !slices.Equal(common, bases):
				return nil, errors.New("the engines serve several models; name the adapter's with --model")
			}
			common = bases
			targets = append(targets, b)
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("no engine serves the model %q", model)
	}
	return targets, nil
}

// bases are the models that are no adapters, in order.
func (l *modelList) bases() (ids []string) {
	for _, raw := range l.Data {
		var m struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
		}
		if json.Unmarshal(raw, &m) == nil && m.Parent == nil {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// at asks one engine, and returns what went wrong.
func (x Adapters) at(ctx context.Context, b *router.Backend, a adapter) (wrong string) {
	ctx, cancel := context.WithTimeout(ctx, adapterWithin)
	defer cancel()
	path, body := "/v1/unload_lora_adapter", map[string]string{"lora_name": a.name}
	if a.path != "" {
		path, body["lora_path"] = "/v1/load_lora_adapter", a.path
	}
	status, answer, err := x.s.checks.post(ctx, b.Base()+path, body)
	var told struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(answer, &told)
	message := told.Error.Message
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("it has not answered within %s", adapterWithin)
	case err != nil:
		return err.Error()
	case status == http.StatusOK, a.path != "" && strings.Contains(message, "already been loaded"), a.path == "" && status == http.StatusNotFound && message != "":
		return ""
	case status == http.StatusNotFound && message == "":
		return "it has no " + path + "; start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
	}
	return cmp.Or(message, fmt.Sprintf("%s answered %d", path, status))
}

// post sends JSON once, and reads the answer.
func (c *checker) post(ctx context.Context, url string, body any) (status int, answer []byte, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.s.cfg.Auth != "" {
		req.Header.Set("Authorization", c.s.cfg.Auth)
	}
	resp, err := c.client.HTTPClient.Do(req)
	if err != nil {
		return 0, nil, tlsconf.Explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, probeBody))
	return resp.StatusCode, answer, err
}
