package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"xpyd/cmd/config"
	"xpyd/internal/files"
	"xpyd/kvparams"
	"xpyd/netio/tlsconf"
	"xpyd/router"
)

const (
	askTimeout   = 3 * time.Second  // for one question, which is tried twice
	roundTimeout = 30 * time.Second // for one leg, because an engine's first transfer can take seconds
	answerLimit  = 8 << 20          // bytes read of one answer
)

// engine is what one backend reported of itself.
type engine struct {
	role, url, health, version string
	models                     []string
	room                       int              // tokens of prompt and answer together; 0: not known
	dialect                    kvparams.Dialect // of its connector, as configured
}

func (e *engine) String() string { return e.role + " " + e.url }

// report is all that a probe found. A note is about what works but costs something. A fault would make
// a client's request fail.
type report struct {
	engines       []*engine
	rounds        []round
	transfers     []transfer
	notes, faults []string
}

func (r *report) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// engineProber asks engines directly, as the proxy would. It sends the backend key, and does not use the
// HTTP proxy that the environment may name.
type engineProber struct {
	cfg    config.Config
	asking *retryablehttp.Client
	rounds *http.Client // never retries, because a handle is good for one decode
	*report

	decodes []*engine
	room    int                       // tokens of prompt and answer together; 0: not known
	targets map[string]*kvparams.Peer // decode engines as a prefill leg names them, where it does; by URL
	peers   map[string]*kvparams.Peer // of prefill engines, where the connector needs it; by URL
	kept    map[string]bool           // decode engines that keep the blocks of their answers
}

func runProbe(ctx context.Context, c config.Config, bandwidth bool) (*report, error) {
	secured, err := c.BackendTLS.Load(files.NewReader(false).Bytes)
	if err != nil {
		return nil, fmt.Errorf("backend_tls.%w", err)
	}
	p := newEngineProber(c, &http.Transport{TLSClientConfig: secured, MaxIdleConnsPerHost: 1, DisableKeepAlives: true})
	p.run(ctx)
	if bandwidth {
		p.bandwidth(ctx, c.KV.TransferGBps)
	}
	return p.report, nil
}

func newEngineProber(c config.Config, transport *http.Transport) *engineProber {
	asking := retryablehttp.NewClient()
	asking.HTTPClient = &http.Client{Transport: transport, Timeout: askTimeout, CheckRedirect: stay}
	asking.RetryMax = 1
	asking.RetryWaitMin, asking.RetryWaitMax = 100*time.Millisecond, 200*time.Millisecond
	asking.ErrorHandler = retryablehttp.PassthroughErrorHandler
	asking.Logger = nil // its lines would stand between the tables
	return &engineProber{
		cfg: c, asking: asking,
		rounds: &http.Client{Transport: transport, Timeout: roundTimeout, CheckRedirect: stay},
		report: &report{}, kept: map[string]bool{}, peers: map[string]*kvparams.Peer{}, targets: map[string]*kvparams.Peer{},
	}
}

// stay has no redirect followed, as xpyd follows none and the key is for the engine.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (p *engineProber) run(ctx context.Context) {
	var prefills []*engine
	for _, entry := range p.found(ctx, "prefill", p.cfg.Router.Prefill) {
		e := p.ask(ctx, "prefill", entry)
		p.askPeer(ctx, e, entry)
		prefills = append(prefills, e)
	}
	decodes := p.found(ctx, "decode", p.cfg.Router.Decode)
	for _, entry := range decodes {
		e := p.ask(ctx, "decode", entry)
		p.target(e, entry, ranksIn(decodes, entry.URL))
		p.decodes = append(p.decodes, e)
	}
	for _, entry := range p.found(ctx, "both", p.cfg.Router.Engines) {
		e := p.ask(ctx, "both", entry)
		p.askPeer(ctx, e, entry)
		p.target(e, entry, 0) // no connector without roles has such legs
		prefills, p.decodes = append(prefills, e), append(p.decodes, e)
	}
	p.compareModels()
	noteUnproven(p)
	p.encoders(ctx, slices.Clone(p.engines))
	p.compareFlags(ctx)
	p.compareRanks(ctx, prefills)
	p.compareRanks(ctx, slices.DeleteFunc(slices.Clone(p.decodes), func(e *engine) bool { return slices.Contains(prefills, e) }))
	for _, prefill := range prefills {
		for _, decode := range p.decodes {
			if prefill.health == "ok" && decode.health == "ok" && prefill.connects(decode) && baseOf(prefill.url) != baseOf(decode.url) {
				p.pair(ctx, prefill, decode)
			}
		}
	}
}

// ask fills in what the backend answers. What it does not answer becomes a fault.
func (p *engineProber) ask(ctx context.Context, role string, entry router.Entry) *engine {
	e, url := &engine{role: role, url: entry.URL, dialect: p.cfg.Dialect(entry)}, entry.URL
	p.engines = append(p.engines, e)
	if err := p.health(ctx, baseOf(url)); err != nil {
		e.health = "no"
		p.fault("%s is not healthy: %v", e, err)
		return e
	}
	e.health = "ok"
	p.askModels(ctx, e)
	p.askVersion(ctx, e)
	if role != "encode" {
		p.askConnector(ctx, e)
	}
	return e
}

func (p *engineProber) askModels(ctx context.Context, e *engine) {
	body, err := p.get(ctx, baseOf(e.url)+"/v1/models")
	var list struct {
		Data []struct {
			ID   string `json:"id"`
			Room int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	for _, m := range list.Data {
		e.models = append(e.models, m.ID)
		e.room = max(e.room, m.Room)
		if m.Room > 0 && (p.room == 0 || m.Room < p.room) {
			p.room = m.Room
		}
	}
	slices.Sort(e.models)
	switch {
	case err != nil:
		p.fault("%s does not list its models: %v", e, err)
	case len(e.models) == 0:
		p.fault("%s lists no model", e)
	}
}

func (p *engineProber) askVersion(ctx context.Context, e *engine) {
	path := "/version"
	foreign, isForeign := e.dialect.(kvparams.Foreign)
	if isForeign {
		path = foreign.Version()
	}
	body, err := p.get(ctx, baseOf(e.url)+path)
	var v struct {
		Version string `json:"version"`
	}
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	e.version = v.Version
	_, _, ok := kvparams.Release(e.version)
	switch {
	case isForeign && err != nil:
		p.note("%s does not tell its version: %v", e, err)
	case isForeign: // what follows is about vLLM
	case err != nil:
		p.fault("%s does not tell its version: %v", e, err)
	case !ok:
		p.note("%s has the version %q, of which nothing is known", e, e.version)
	case !kvparams.Since(e.version, 32) && p.cfg.KV.Release == "reject":
		p.fault("%s is vLLM %s, which frees no blocks on a rejected request; set kv.release to auto or update to 0.32", e, e.version)
	case !kvparams.Since(e.version, 32) && p.cfg.KV.Release == "auto":
		p.note("%s is vLLM %s: an abandoned prefill costs a decode of one token; from 0.32 on it is freed by a rejected request", e, e.version)
	}
}

// noteUnproven says once of each connector with which releases of the engines it has not run. The configuration's own
// warnings name connectors that have run with none.
func noteUnproven(p *engineProber) {
	said := map[string]bool{}
	for _, e := range p.engines {
		s := kvparams.StandingOf(e.dialect.Name())
		if why := s.Unproven(e.version); e.role != "encode" && len(p.cfg.Router.Prefill) > 0 && s.How() == kvparams.Run && why != "" && !said[why] {
			said[why] = true
			p.note("%s is vLLM %s: %s", e, e.version, why)
		}
	}
}

// compareModels checks that all engines of a connector serve the same names, because a request may go to any
// of them.
func (p *engineProber) compareModels() {
	firsts := map[string]*engine{}
	for _, e := range p.engines {
		first := firsts[e.dialect.Name()]
		switch {
		case len(e.models) == 0:
		case first == nil:
			firsts[e.dialect.Name()] = e
		case !slices.Equal(e.models, first.models):
			p.fault("%s serves the models %q, %s serves %q; give all the same --served-model-name", e, e.models, first, first.models)
		}
	}
}

func (p *engineProber) health(ctx context.Context, base string) error {
	_, err := p.get(ctx, base+"/health")
	return err
}

func (p *engineProber) get(ctx context.Context, url string) ([]byte, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", url, err)
	}
	p.authorize(req.Header)
	return readAnswer(p.asking.Do(req))
}

func (p *engineProber) authorize(h http.Header) {
	if p.cfg.BackendAPIKey != "" {
		h.Set("Authorization", "Bearer "+p.cfg.BackendAPIKey)
	}
}

// statusError is an answer other than 200.
type statusError struct {
	status  int
	message string // the engine's message, shortened to a line
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("status %d", e.status)
	if e.message != "" {
		text += fmt.Sprintf(", %q", e.message)
	}
	if e.status == http.StatusUnauthorized || e.status == http.StatusForbidden {
		text += "; give the key that the engine takes in backend_api_key_file"
	}
	return text
}

func readAnswer(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, tlsconf.Explain(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(body) > answerLimit:
		return nil, fmt.Errorf("the answer is larger than %s", config.SizeText(answerLimit))
	case resp.StatusCode != http.StatusOK:
		return nil, &statusError{resp.StatusCode, errorMessage(body)}
	}
	return body, nil
}

// errorMessage returns what vLLM says in an error body. A prompt in it can only be ours.
func errorMessage(body []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil {
		return ""
	}
	return fmt.Sprintf("%.200s", e.Error.Message)
}
