package cmd

import (
	"context"
	"encoding/json"

	"xpyd/kvparams"
	"xpyd/router"
)

// connects reports that the two engines are to hand blocks over.
func (e *engine) connects(o *engine) bool { return e.dialect.Name() == o.dialect.Name() }

// askConnector compares the connector that an engine has with the one that is configured. A vLLM says it only
// with VLLM_SERVER_DEV_MODE=1. Of the others a round tells whether blocks come.
func (p *engineProber) askConnector(ctx context.Context, e *engine) {
	want := kvparams.EngineName(e.dialect)
	if want == "" { // it is no vLLM, or may have any of several
		return
	}
	body, err := p.get(ctx, baseOf(e.url)+"/server_info?config_format=json")
	if err != nil {
		return
	}
	type transfer struct {
		Connector string `json:"kv_connector"`
		Role      string `json:"kv_role"`
	}
	var info struct {
		Config *struct {
			Transfer *struct {
				transfer
				Extra struct {
					Connectors []transfer `json:"connectors"` // of a MultiConnector
				} `json:"kv_connector_extra_config"`
			} `json:"kv_transfer_config"`
		} `json:"vllm_config"`
	}
	if json.Unmarshal(body, &info) != nil || info.Config == nil {
		return
	}
	start := e.dialect.EngineConfig(kvparams.Prefills)
	switch e.role {
	case "decode":
		start = e.dialect.EngineConfig(kvparams.Decodes)
	case "both":
		start = kvparams.EitherConfig(e.dialect)
	}
	has := info.Config.Transfer
	if has == nil {
		if len(p.cfg.Router.Pooled(router.Prefill)) > 0 {
			p.fault("%s says that it has no connector; start it with %s", e, start)
		}
		return
	}
	for _, t := range append(has.Extra.Connectors, has.transfer) {
		if t.Connector == want || kvparams.Canonical(t.Connector) == e.dialect.Name() {
			if e.role == "both" && t.Role != "" && t.Role != "kv_both" {
				p.fault("%s says that its kv_role is %s; name it in prefill or decode, or start it with %s", e, t.Role, start)
			}
			return
		}
	}
	p.fault("%s says that it has %s, and it is configured with connector %s, which is %s; put its own connector after its URL (connector=NAME), or start it with %s",
		e, has.Connector, e.dialect.Name(), want, start)
}
