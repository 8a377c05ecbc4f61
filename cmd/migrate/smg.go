package migrate

import (
	"errors"
	"strings"
)

// whyEncode: SGLang's encode servers answer no chats, and push what they encode to the prefill server.
const whyEncode = "encode is for vLLM's engines, which are asked by chats (docs/encode.md); SGLang's encode servers are asked otherwise"

// smg has the flags of the Shepherd Model Gateway (lightseekorg/smg), of the Rust binary and of the
// Python launcher (model_gateway/src/main.rs and router_args.py there).
func smg() router {
	key := []string{"X-SMG-Routing-Key"}
	family := gateway{pd: "pd-disaggregation", host: "0.0.0.0", guards: true, engine: "sglang", collector: "localhost:4317", policies: map[string]policy{
		"random":             {name: "random"},
		"round_robin":        {name: "round_robin"},
		"passthrough":        {name: "round_robin"},
		"cache_aware":        {name: "prefix"},
		"power_of_two":       {name: "power_of_two"},
		"least_load":         {name: "least_tokens"},
		"bucket":             {name: "least_tokens"},
		"prefix_hash":        {name: "consistent_hash"},
		"consistent_hashing": {name: "consistent_hash", headers: key},
		"manual":             {name: "least_request", headers: key},
	}}
	rules := append(gatewayRules(), rule{flag: family.pd})
	rules = append(rules, sglangRules()...)
	rules = append(rules, smgRules()...)
	return router{
		name:  "smg",
		rules: rules, skip: []string{"launch", "start"},
		fit: func(g given, p *plan) error {
			if err := family.fit(g, p); err != nil {
				return err
			}
			return fitTenants(g, p, key)
		},
	}
}

// smgRules are the flags that only smg has.
func smgRules() []rule {
	rules := []rule{
		{flag: "tenant-api-key", takes: one},
		{flag: "routing-key-override"},
		{flag: "log-json", key: "log.format", value: func(string) (string, error) { return "json", nil }},
	}
	for _, more := range [][]rule{
		without(whyPrefix, one, "balance-token-usage-threshold", "overload-token-usage-threshold", "block-size", "least-load-kv-pressure-weight",
			"least-load-default-throughput", "least-load-mean-prefill-tokens"),
		without("/livez, /readyz and /health are on the data port and on the admin port", one, "health-check-port"),
		without(whyRankTokens, none, "dp-minimum-tokens-scheduler"),
		without(whyEncode, none, "epd-disaggregation"),
		without(whyEncode, one, "encode-policy"),
		without(whyEncode, target, "encode"),
		without(whyKubernetes, many, "encode-selector", "router-selector"),
		without(whyModels, one, "model-id-from", "model-alias"),
		without(whyStart, one, "worker-startup-delay"),
		without("routing.poll is the time between two readings of an engine's metrics", one, "load-monitor-interval"),
		without("Prometheus reads the engines' metrics itself", none, "engine-metrics"),
		without("xpyd passes images on as the client wrote them", one, "multimodal-tensor-transport", "multimodal-shm-min-bytes"),
		without(whyHistory, many, "storage-context-headers"),
		without(whyHistory, one, "schema-config", "redis-pool-max-size"),
		without(whyHistory, none, "oracle-external-auth"),
		without("a client is its key, or its address where no keys are set", none, "trust-tenant-header"),
		without("a client is its key, or its address where no keys are set", one, "tenant-header-name"),
		without("keys_file says which keys may name a priority (docs/keys.md)", none, "priority-scheduler-enabled"),
		without("keys_file says which keys may name a priority (docs/keys.md)", one, "priority-scheduler-default-max-class", "priority-scheduler-config", "priority-scheduler-tenant-metric-top-n"),
		without("keys_file has the limits of each key (docs/keys.md)", none, "tenant-rate-limit-enabled"),
		without("keys_file has the limits of each key (docs/keys.md)", one, "tenant-rate-limit-config"),
		without("a backend that is down stays in its pool and gets no requests", none, "remove-unhealthy-workers"),
		without("a backend that a reload removes keeps its requests until they end", one, "drain-settle-secs"),
		without(whyTokenizer, one, "model"),
		without(whyTokenizer, none, "disable-tokenizer-autoload"),
		without(whyWasm, one, "storage-hook-wasm-path"),
		without("replicas of xpyd agree without talking to each other", none, "enable-mesh"),
		without("replicas of xpyd agree without talking to each other", one, "mesh-server-name", "mesh-host", "mesh-advertise-host", "mesh-port"),
		without("replicas of xpyd agree without talking to each other", many, "mesh-peer-urls"),
		without("xpyd has no WebRTC", one, "webrtc-bind-addr", "webrtc-stun-server"),
		without("GOMAXPROCS bounds the threads", one, "runtime-worker-threads"),
		without("it belongs to smg serve, which starts engines too", none, "router-disable-arg-fallback"),
	} {
		rules = append(rules, more...)
	}
	return rules
}

// fitTenants adds the tenants' keys to those that clients may show, and the header of sticky requests.
func fitTenants(g given, p *plan, key []string) error {
	if g.has("routing-key-override") {
		p.set("affinity.headers", list(key), g.from("routing-key-override"))
	}
	if !g.has("tenant-api-key") {
		return nil
	}
	var keys []string
	if g.has("api-key") {
		keys = append(keys, g.word("api-key", ""))
	}
	for _, entry := range g["tenant-api-key"] {
		_, key, ok := strings.Cut(entry, ":")
		if !ok {
			return errors.New("--tenant-api-key: a value lacks the colon between tenant and key")
		}
		keys = append(keys, key)
	}
	p.set("api_keys", list(keys), g.from("api-key", "tenant-api-key")+". Better in a file: api_key_file")
	return nil
}
