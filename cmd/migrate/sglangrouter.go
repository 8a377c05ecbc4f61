package migrate

import (
	"errors"
	"strconv"
)

// sglangRouter has the flags of sgl-model-gateway, formerly sglang-router (sgl-project/sglang), of the
// Rust binary and of the Python launcher (src/main.rs and router_args.py there).
func sglangRouter() router {
	family := gateway{pd: "pd-disaggregation", host: "0.0.0.0", guards: true, engine: "sglang", collector: "localhost:4317", policies: map[string]policy{
		"random":       {name: "random"},
		"round_robin":  {name: "round_robin"},
		"cache_aware":  {name: "prefix"},
		"power_of_two": {name: "power_of_two"},
		"prefix_hash":  {name: "consistent_hash"},
		"bucket":       {name: "least_tokens"},
		"manual":       {name: "least_request", headers: []string{"X-SMG-Routing-Key"}},
	}}
	rules := append(gatewayRules(), rule{flag: family.pd})
	rules = append(rules, sglangRules()...)
	rules = append(rules, without("it is the whole router", none, "mini-lb")...)
	rules = append(rules, without("affinity.headers needs no table of sessions", one, "redis-key-prefix")...)
	return router{
		name:  "sglang-router",
		rules: rules, fit: family.fit, skip: []string{"launch", "start"},
	}
}

// sglangRules are the flags that sglang-router and smg share beyond those of the family.
func sglangRules() []rule {
	rules := []rule{
		{flag: "shutdown-grace-period-secs", takes: one, key: "timeouts.drain", value: seconds},
		{flag: "tls-cert-path", takes: one, key: "tls.cert", value: asWritten},
		{flag: "tls-key-path", takes: one, key: "tls.key", value: asWritten},
		{flag: "client-cert-path", takes: one, key: "backend_tls.cert", value: asWritten},
		{flag: "client-key-path", takes: one, key: "backend_tls.key", value: asWritten},
	}
	for _, more := range [][]rule{
		without(whyPrefix, one, "prefix-token-count", "prefix-hash-load-factor", "bucket-adjust-interval-secs"),
		without("affinity.headers needs no table of sessions", one, "max-idle-secs", "assignment-mode"),
		read(none, "dp-aware"),
		without("xpyd always checks its engines", none, "disable-health-check"),
		without("the buckets of xpyd's metrics are fixed", many, "prometheus-duration-buckets"),
		without(whyTokenizer, one, "model-path", "tokenizer-path", "chat-template", "tokenizer-cache-l0-max-entries", "tokenizer-cache-l1-max-memory"),
		without(whyTokenizer, none, "tokenizer-cache-enable-l0", "tokenizer-cache-enable-l1"),
		without(whyParsers, one, "reasoning-parser", "tool-call-parser"),
		without("xpyd calls no tools", one, "mcp-config-path"),
		without(whyWasm, none, "enable-wasm"),
		without(whyHistory, one, "oracle-wallet-path", "oracle-tns-alias", "oracle-dsn", "oracle-connect-descriptor", "oracle-user", "oracle-username",
			"oracle-password", "oracle-pool-min", "oracle-pool-max", "oracle-pool-timeout-secs", "postgres-db-url", "postgres-pool-max",
			"postgres-pool-max-size", "redis-url", "redis-pool-max", "redis-retention-days"),
		read(many, "ca-cert-paths"),
		without(whyKeys, one, "jwt-issuer", "jwt-audience", "jwt-jwks-uri", "jwt-role-claim"),
		without(whyKeys, many, "jwt-role-mapping", "control-plane-api-keys"),
		without(whyKeys, none, "disable-audit-logging", "control-plane-audit-enabled"),
	} {
		rules = append(rules, more...)
	}
	return rules
}

// authorities sets the file of the engines' CAs. xpyd takes only one file.
func (p *plan) authorities(g given) error {
	switch files := g["ca-cert-paths"]; len(files) {
	case 0:
		return nil
	case 1:
		p.set("backend_tls.ca", strconv.Quote(files[0]), g.from("ca-cert-paths"))
		return nil
	}
	return errors.New("--ca-cert-paths: xpyd takes one file; put all CAs into one")
}
