package cmd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"xpyd/bench/verify"
	"xpyd/kvparams"
)

// encoders asks the encode engines what is asked of all, and then has each encode an item as serve would. Of the others, only
// those that serve a model of an encode engine have to find its encodings.
func (p *engineProber) encoders(ctx context.Context, others []*engine) {
	asked := map[*engine]bool{}
	for _, entry := range p.found(ctx, "encode", p.cfg.Router.Encode) {
		e := p.ask(ctx, "encode", entry)
		if e.health != "ok" || len(e.models) == 0 {
			continue
		}
		p.askEncodes(ctx, e)
		model := ""
		for _, o := range others {
			common := commonModel(e, o)
			if model == "" {
				model = common
			}
			if common != "" && o.health == "ok" && !asked[o] {
				asked[o] = true
				p.askEncodes(ctx, o)
			}
			if (o.role == "prefill" || o.role == "both") && o.version != e.version && o.version != "" && e.version != "" {
				p.note("%s is vLLM %s and %s is %s; encodings are found by a hash, which two versions may make differently", e, e.version, o, o.version)
			}
		}
		if model == "" {
			p.fault("%s serves the models %q, and no prefill or decode engine serves one of them; give all the same --served-model-name", e, e.models)
			continue
		}
		p.encodes(ctx, e, model, others)
	}
}

// encodes has an engine encode an image, or a sound if its model refuses images. The others have to reach the encoding.
func (p *engineProber) encodes(ctx context.Context, e *engine, model string, others []*engine) {
	answer, err := p.encode(ctx, e, model, verify.Picture())
	var refused *statusError
	if errors.As(err, &refused) && refused.status == http.StatusBadRequest {
		if heard, again := p.encode(ctx, e, model, verify.Sound()); again == nil {
			answer, err = heard, nil
		}
	}
	if err != nil {
		p.fault("%s does not encode: %v", e, err)
		return
	}
	stranger, local := "", ""
	members, err := kvparams.Encodings(answer, func(host []byte) (string, bool) {
		if loopback(string(host)) {
			local = string(host)
		}
		if p.allowed(string(host)) != nil {
			stranger = string(host)
		}
		return "", stranger == ""
	})
	switch {
	case stranger != "":
		p.fault("%s says that its encodings are at %q, which is not in kv.allow_hosts", e, stranger)
	case err != nil:
		p.fault("%s: %v", e, err)
	case local != "" && !p.cfg.KV.RewriteLoopback:
		p.localTo(e, local, others)
	case members == nil:
		p.note("%s does not say where its encodings are; that is right only for a connector that says nothing, such as ECCPUConnector without ec_enable_nixl. "+
			"Otherwise start it with --ec-transfer-config and ec_role ec_producer", e)
	}
}

// localTo faults an engine whose encodings are at a loopback host, if an engine on another host needs them. With
// kv.rewrite_loopback serve names the engine's own host in its place.
func (p *engineProber) localTo(e *engine, host string, others []*engine) {
	for _, o := range others {
		if !sameHost(e.url, o.url) {
			p.fault("%s says that its encodings are at %q, which %s on another host cannot reach; set VLLM_EC_SIDE_CHANNEL_HOST there to its address, or kv.rewrite_loopback here", e, host, o)
			return
		}
	}
}

// encode sends an item as serve sends it, and returns the answer.
func (p *engineProber) encode(ctx context.Context, e *engine, model string, item map[string]any) ([]byte, error) {
	body, err := json.Marshal(map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": []any{item}}}})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	req := kvparams.Request{FindMedia: true}
	if err := req.Parse(kvparams.Chat, body); err != nil || req.Media() != 1 {
		panic(fmt.Sprintf("BUG: the probe's own body has %d items: %v", req.Media(), err))
	}
	return p.postTo(ctx, e.url, kvparams.Chat.Path(), req.AppendEncode(nil, 0, 1), "xpyd-check-"+rand.Text()+"-e0")
}

// askEncodes compares the role that an engine has among those that share encodings with the one that it is
// configured for. A vLLM says it only with VLLM_SERVER_DEV_MODE=1.
func (p *engineProber) askEncodes(ctx context.Context, e *engine) {
	var want []string
	switch {
	case e.role == "encode":
		want = []string{"ec_producer", "ec_both"}
	case e.role == "prefill" || e.role == "both" || len(p.cfg.Router.Prefill) == 0:
		want = []string{"ec_consumer", "ec_both"}
	default:
		return
	}
	body, err := p.get(ctx, baseOf(e.url)+"/server_info?config_format=json")
	if err != nil {
		return
	}
	var info struct {
		Config *struct {
			Transfer *struct {
				Connector string `json:"ec_connector"`
				Role      string `json:"ec_role"`
			} `json:"ec_transfer_config"`
		} `json:"vllm_config"`
	}
	if json.Unmarshal(body, &info) != nil || info.Config == nil {
		return
	}
	switch has := info.Config.Transfer; {
	case has == nil || has.Connector == "":
		p.fault("%s says that it has no connector for encodings; start it with --ec-transfer-config and ec_role %s (docs/encode.md)", e, want[0])
	case !slices.Contains(want, has.Role):
		p.fault("%s says that its ec_role is %s, and here it must be %s (docs/encode.md)", e, has.Role, want[0])
	}
}
