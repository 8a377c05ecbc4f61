package migrate

// vllmRouter has the flags of vllm-project/router, of the Rust binary and of the Python launcher
// (docs/cli_reference.md and src/main.rs there).
func vllmRouter() router {
	sessions := []string{"X-Session-ID", "X-User-ID", "X-Tenant-ID"}
	family := gateway{pd: "vllm-pd-disaggregation", host: "127.0.0.1", engine: "vllm", policies: map[string]policy{
		"random":              {name: "random"},
		"round_robin":         {name: "round_robin"},
		"cache_aware":         {name: "prefix"},
		"power_of_two":        {name: "power_of_two"},
		"consistent_hash":     {name: "consistent_hash", headers: sessions},
		"rendezvous_hash":     {name: "consistent_hash", headers: sessions},
		"sticky_least_loaded": {name: "least_request", headers: sessions},
		"sticky_round_robin":  {name: "round_robin", headers: sessions},
	}}
	rules := append(gatewayRules(),
		rule{flag: family.pd},
		rule{flag: "kv-connector", takes: one, key: "connector", value: asWritten},
		rule{flag: "otel-sampling-ratio", takes: one},
	)
	for _, more := range [][]rule{
		without("xpyd does not take engines that register themselves; list them in prefill and decode", one, "vllm-discovery-address"),
		read(one, "intra-node-data-parallel-size"),
		without("xpyd checks keys itself (api_key_file), without asking another server", many, "api-key-validation-urls"),
		without("it is the whole router", none, "mini-lb"),
		without("only completions and relayed requests are traced, and no health checks", many, "otel-excluded-paths"),
		without("xpyd does not pass /start_profile on", none, "profile"),
		without("affinity.headers keeps the requests of a session together", none, "enable-program-scheduling"),
		without("affinity.headers keeps the requests of a session together", one, "program-scheduling-config-json"),
		without(whyWasm, one, "wasm-middleware", "wasm-middleware-sha256", "wasm-middleware-route"),
	} {
		rules = append(rules, more...)
	}
	return router{name: "vllm-router", rules: rules, fit: family.fit}
}
