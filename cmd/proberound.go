package cmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"xpyd/kvparams"
	"xpyd/metrics/exposition"
	"xpyd/router"
)

// round is one token over one pair of engines.
type round struct {
	dialect                 kvparams.Dialect
	prefill, decode, model  string
	result                  string // ok, or the leg that failed
	prefillTime, decodeTime time.Duration
}

// pair compares two healthy engines and sends a round through them.
func (p *engineProber) pair(ctx context.Context, prefill, decode *engine) {
	if !prefill.agrees(decode) {
		if p.somePairAgrees() {
			p.note("%s is vLLM %s and %s is %s: xpyd pairs only engines of one version, while there are such", prefill, prefill.version, decode, decode.version)
			return
		}
		p.fault("%s is vLLM %s and %s is %s; connectors of two versions refuse each other", prefill, prefill.version, decode, decode.version)
	}
	model := commonModel(prefill, decode)
	if _, pairs := prefill.dialect.(kvparams.Pairing); model == "" || pairs && p.peers[prefill.url] == nil {
		return // compareModels, askModels or askPeer has reported that
	}
	r := round{dialect: prefill.dialect, prefill: prefill.url, decode: decode.url, model: model, result: "ok"}
	if err := p.round(ctx, &r, probeBody(model)); err != nil {
		p.fault("%s with %s: %v", prefill, decode, err)
	}
	p.report.rounds = append(p.report.rounds, r)
}

// agrees reports that the two engines may be of one version. An unknown one goes with any.
func (e *engine) agrees(o *engine) bool {
	return e.version == o.version || e.version == "" || o.version == ""
}

// somePairAgrees reports that serve has a pair of one version.
func (p *engineProber) somePairAgrees() bool {
	for _, d := range p.decodes {
		if slices.ContainsFunc(p.engines, func(e *engine) bool {
			return (e.role == "prefill" || e.role == "both" && e != d) && e.health == "ok" && d.health == "ok" && e.connects(d) && e.agrees(d)
		}) {
			return true
		}
	}
	return false
}

func commonModel(a, b *engine) string {
	for _, m := range a.models {
		if slices.Contains(b.models, m) {
			return m
		}
	}
	return ""
}

// round sends the body, which is a completion of one token, through both legs.
func (p *engineProber) round(ctx context.Context, r *round, body []byte) error {
	id := "xpyd-check-" + rand.Text()
	var req kvparams.Request
	if err := req.Parse(kvparams.Completions, body); err != nil {
		panic("BUG: the probe's own body: " + err.Error())
	}
	leg := &kvparams.Leg{ID: id, Peer: p.peers[r.prefill], Target: p.targets[r.decode]}
	if r.dialect.Concurrent() {
		return p.together(ctx, r, &req, leg)
	}
	handle, err := p.prefillLeg(ctx, r, &req, leg)
	if err != nil {
		r.result = "prefill"
		return err
	}
	if err := p.allowed(string(handle.RemoteHost)); err != nil {
		r.result = "prefill"
		return err // the handle is dropped, and its blocks wait for the lease
	}
	back := leftover{r: r, req: &req, handle: handle, id: leg.ID}
	handle = p.asServed(handle, r)
	if err := p.reachable(string(handle.RemoteHost), r); err != nil {
		r.result = "prefill"
		return p.giveBack(ctx, back, err)
	}
	before, counted := p.pulledTokens(ctx, r.decode)
	if err := p.decodeLeg(ctx, r, &req, handle, leg); err != nil {
		r.result = "decode"
		back.handle = handle
		return p.giveBack(ctx, back, err)
	}
	if counted && !p.pulledSince(ctx, r.decode, before) {
		r.result = "no pull"
		back.handle, back.deaf = handle, true
		return p.giveBack(ctx, back, errNoPull(r.dialect))
	}
	return nil
}

// probeBody is a prompt of some blocks that no engine has in its prefix cache.
func probeBody(model string) []byte {
	fresh := make([]byte, 8)
	rand.Read(fresh)
	body, err := json.Marshal(map[string]any{
		"model": model, "max_tokens": 1, "temperature": 0,
		"prompt": hex.EncodeToString(fresh) + strings.Repeat(" one two three four", 50),
	})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return body
}

// prefillLeg returns a handle that decode can use.
func (p *engineProber) prefillLeg(ctx context.Context, r *round, req *kvparams.Request, leg *kvparams.Leg) (kvparams.Handle, error) {
	start := time.Now()
	began := start // of the answer, when prefill's lease has begun
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { began = time.Now() }})
	body, err := p.post(ctx, r.prefill, r.dialect.AppendPrefill(nil, req, leg), leg.ID)
	r.prefillTime = time.Since(start)
	if err != nil {
		return kvparams.Handle{}, fmt.Errorf("prefill: %w", err)
	}
	took, kv := time.Since(began), &p.cfg.KV
	answer, err := r.dialect.ParseAnswer(body)
	if err == nil {
		err = answer.Covers(0, kvparams.Extent{})
	}
	if err != nil {
		return kvparams.Handle{}, fmt.Errorf("prefill answer: %w", err)
	}
	h := answer.Handle
	if !r.dialect.HandleInAnswer() {
		return h, nil
	}
	if took >= kv.Lease-kv.LeaseMargin {
		return h, fmt.Errorf("prefill's answer took %.1f s from its first byte to its last, and xpyd uses no handle older than kv.lease - kv.lease_margin, %v", took.Seconds(), kv.Lease-kv.LeaseMargin)
	}
	if h.None() {
		return h, errors.New("prefill answered without kv_transfer_params; start it with " + r.dialect.EngineConfig(kvparams.Prefills))
	}
	return h, nil
}

func (p *engineProber) allowed(host string) error {
	same := func(allowed string) bool { return strings.EqualFold(allowed, host) }
	if allow := p.cfg.KV.AllowHosts; host != "" && len(allow) > 0 && !slices.ContainsFunc(allow, same) {
		return fmt.Errorf("prefill's remote_host %q is not in kv.allow_hosts", host)
	}
	return nil
}

// asServed returns the handle as serve would send it to decode, see kv.rewrite_loopback.
func (p *engineProber) asServed(h kvparams.Handle, r *round) kvparams.Handle {
	host := string(h.RemoteHost)
	if !p.cfg.KV.RewriteLoopback || !loopback(host) || net.ParseIP(host).IsUnspecified() || hostOf(r.prefill) == hostOf(r.decode) {
		return h
	}
	return h.WithHost(hostOf(r.prefill))
}

// reachable checks whether decode can connect to the side channel at the host that prefill names.
func (p *engineProber) reachable(host string, r *round) error {
	if !loopback(host) || sameHost(r.prefill, r.decode) {
		return nil
	}
	return fmt.Errorf("prefill's remote_host is %q, which decode on another host cannot reach; set VLLM_NIXL_SIDE_CHANNEL_HOST on prefill to its address", host)
}

func loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

func sameHost(a, b string) bool {
	ha, hb := hostOf(a), hostOf(b)
	return ha == hb || loopback(ha) && loopback(hb)
}

// baseOf is what requests to a backend begin with.
func baseOf(backend string) string {
	base, _ := router.SplitRank(backend)
	return base
}

func hostOf(base string) string {
	u, err := url.Parse(baseOf(base))
	if err != nil {
		panic("BUG: a backend URL that validation let pass: " + err.Error())
	}
	return u.Hostname()
}

func (p *engineProber) decodeLeg(ctx context.Context, r *round, req *kvparams.Request, h kvparams.Handle, leg *kvparams.Leg) error {
	start := time.Now()
	body, err := p.post(ctx, r.decode, r.dialect.AppendDecode(nil, req, h, leg), leg.ID)
	r.decodeTime = time.Since(start)
	var c kvparams.Completion
	if err == nil {
		err = c.Parse(body)
	}
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if c.Handle() && !p.kept[r.decode] {
		p.kept[r.decode] = true
		p.note("decode %s keeps the blocks of each answer for decoder_kv_blocks_ttl, 480 s unless set, and xpyd does not use them; start it without bidirectional_kv_xfer", r.decode)
	}
	return nil
}

func (p *engineProber) post(ctx context.Context, base string, body kvparams.Segments, id string) ([]byte, error) {
	return p.postTo(ctx, base, kvparams.Completions.Path(), body, id)
}

func (p *engineProber) postTo(ctx context.Context, base, path string, body kvparams.Segments, id string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, baseOf(base)+path, bytes.NewReader(bytes.Join(body, nil)))
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", base, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	if _, rank := router.SplitRank(base); rank >= 0 {
		req.Header.Set("X-data-parallel-rank", strconv.Itoa(rank))
	}
	p.authorize(req.Header)
	return readAnswer(p.rounds.Do(req))
}

// pulledTokens returns how many prompt tokens decode has had from other engines, by its metrics. It
// returns false if they do not say.
func (p *engineProber) pulledTokens(ctx context.Context, base string) (total float64, ok bool) {
	return p.counted(ctx, base, "vllm:external_prefix_cache_hits_total")
}

// counted sums the series of one name on an engine's metrics page. It returns false if there are none.
func (p *engineProber) counted(ctx context.Context, base, name string) (total float64, ok bool) {
	body, err := p.get(ctx, baseOf(base)+"/metrics")
	if err != nil {
		return 0, false
	}
	page, err := exposition.Read(bytes.NewReader(body))
	if err != nil {
		return 0, false
	}
	total, err = page.Sum(name)
	return total, err == nil
}

// pulledSince waits up to a second, because decode's counters may be updated after its answer.
func (p *engineProber) pulledSince(ctx context.Context, base string, before float64) bool {
	for range 10 {
		if now, ok := p.pulledTokens(ctx, base); ok && now > before {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	return false
}
