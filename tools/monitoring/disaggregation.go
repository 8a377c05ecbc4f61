package monitoring

func disaggregation() Dashboard {
	return Dashboard{
		File: "pd.json", UID: "xpyd-pd", Title: "xpyd / Prefill and decode",
		About:     "Both pools, both legs, the handles between them, and whether the ratio fits.",
		Variables: ofXpyd(),
		Rows:      []Row{poolsRow(), legsRow(), handlesRow(), pairsRow(), ratioRow()},
	}
}

func poolsRow() Row {
	return Row{"Pools", []Panel{
		{Kind: graph, Title: "In flight on prefill engines", Unit: "short", Queries: one(`sum by (backend) (xpyd_in_flight{$x,role="prefill"})`, "{{backend}}")},
		{Kind: graph, Title: "In flight on decode engines", Unit: "short", Queries: one(`sum by (backend) (xpyd_in_flight{$x,role="decode"})`, "{{backend}}")},
		{Kind: graph, Title: "Engines up", About: "By what /health answers.", Unit: "short", Queries: []Query{
			{`sum by (role) (max by (role, backend) (xpyd_backend_up{$x}))`, "{{role}} up"}, {`count by (role) (max by (role, backend) (xpyd_backend_up{$x}))`, "{{role}} configured"}}},
		{Kind: graph, Title: "Engines down or ejected", Unit: "short", Queries: []Query{
			{`1 - min by (role, backend) (xpyd_backend_up{$x})`, "down: {{backend}}"}, {`max by (role, backend) (xpyd_backend_ejected{$x})`, "ejected: {{backend}}"}}},
		{Kind: graph, Title: "Ejections", About: "In five minutes, by reason.", Unit: "short", Queries: one(`sum by (backend, reason) (increase(xpyd_backend_ejections_total{$x}[5m]))`, "{{backend}} {{reason}}")},
		{Kind: graph, Title: "Completions in the queue", Unit: "short", Stack: true, Queries: one(`sum by (role) (xpyd_queued{$x})`, "{{role}}")},
	}}
}

func legsRow() Row {
	return Row{"Legs", []Panel{
		{Kind: graph, Title: "Prefill leg", Unit: "s", Queries: quantiles(`xpyd_leg_duration_seconds_bucket{$x,leg="prefill"}`)},
		{Kind: graph, Title: "Between the legs", About: "From the prefill answer to the decode request written.", Unit: "s", Queries: quantiles(`xpyd_handoff_seconds_bucket{$x}`)},
		{Kind: graph, Title: "Decode leg", Unit: "s", Queries: quantiles(`xpyd_leg_duration_seconds_bucket{$x,leg="decode"}`)},
		{Kind: graph, Title: "Legs by engine", Unit: "reqps", Queries: one(`sum by (leg, backend) (rate(xpyd_leg_requests_total{$x}[$w]))`, "{{leg}} {{backend}}")},
		{Kind: graph, Title: "Legs that did not succeed", Unit: "reqps", Queries: one(`sum by (leg, outcome) (rate(xpyd_leg_requests_total{$x,outcome!="ok"}[$w]))`, "{{leg}} {{outcome}}")},
		{Kind: graph, Title: "Leg errors by code", Unit: "reqps", Queries: one(`sum by (leg, code) (rate(xpyd_leg_errors_total{$x}[$w]))`, "{{leg}} {{code}}")},
	}}
}

func handlesRow() Row {
	return Row{"KV handles", []Panel{
		{Kind: graph, Title: "KV blocks held for transfers", About: "Pinned: of handles that have not ended. Stranded: of lost ones, until their lease ends.", Unit: "short",
			Queries: []Query{{`sum(xpyd_kv_blocks_pinned{$x})`, "pinned"}, {`sum(xpyd_kv_blocks_stranded{$x})`, "stranded"}}},
		{Kind: graph, Title: "Handles", About: "Each is issued, and ends in one of the other ways. docs/metrics.md explains them.", Unit: "reqps", Queries: []Query{
			{`sum(rate(xpyd_kv_handles_issued_total{$x}[$w]))`, "issued"}, {`sum by (end) (rate(xpyd_kv_handles_total{$x}[$w]))`, "{{end}}"}}},
		{Kind: graph, Title: "Blocks left to their lease", About: "Handles that could not be given back, by reason.", Unit: "reqps", Queries: one(`sum by (reason) (rate(xpyd_kv_orphans_total{$x}[$w]))`, "{{reason}}")},
		{Kind: graph, Title: "Decode engines that pull nothing", About: "They compute prompts once more. It should be 0.", Unit: "short", Queries: one(`max by (backend) (xpyd_backend_nothing_pulled{$x})`, "{{backend}}")},
		{Kind: graph, Title: "Signs of a wrong setting", About: "Handles that name a loopback host, and decode engines that keep blocks of their own.", Unit: "reqps",
			Queries: []Query{{`sum(rate(xpyd_loopback_handles_total{$x}[$w]))`, "loopback"}, {`sum(rate(xpyd_kv_kept_by_decode_total{$x}[$w]))`, "kept by decode"}}},
		{Kind: graph, Title: "Warm-ups", About: "One-token requests over pairs that are new or were banned.", Unit: "reqps", Queries: one(`sum by (result) (rate(xpyd_warmups_total{$x}[$w]))`, "{{result}}")},
	}}
}

func pairsRow() Row {
	return Row{"Pairs", []Panel{
		{Kind: graph, Title: "Transfers by pair", Unit: "reqps", Wide: 12, Queries: one(`sum by (prefill, decode) (rate(xpyd_pair_transfers_total{$x,result="ok"}[$w]))`, "{{prefill}} to {{decode}}")},
		{Kind: graph, Title: "Failed transfers and bans by pair", About: "Transfers in five minutes, and 1 while a pair is banned.", Unit: "short", Wide: 12, Queries: []Query{
			{`sum by (prefill, decode) (increase(xpyd_pair_transfers_total{$x,result="failed"}[5m]))`, "{{prefill}} to {{decode}}"},
			{`max by (prefill, decode) (xpyd_pair_banned{$x})`, "banned: {{prefill}} to {{decode}}"}}},
	}}
}

func ratioRow() Row {
	return Row{"Ratio and prices", []Panel{
		{Kind: graph, Title: "How busy each pool is", About: "Of the last 15 minutes. GET /advice has the arithmetic.", Unit: "percentunit", Queries: one(`avg by (role) (xpyd_pool_load_ratio{$x})`, "{{role}}")},
		{Kind: graph, Title: "Engines now and balanced", About: "Balanced: as the traffic of the last 15 minutes asks for.", Unit: "short", Queries: []Query{
			{`max by (role) (xpyd_pool_balanced_backends{$x})`, "{{role}} balanced"}, {`count by (role) (max by (role, backend) (xpyd_backend_up{$x}))`, "{{role}} now"}}},
		{Kind: graph, Title: "Prompt tokens that decode pulled", Unit: "percentunit", Queries: one(`avg(xpyd_reuse_ratio{$x})`, "pulled")},
		{Kind: graph, Title: "Price of a token", About: "Measured time of a token's prefill, transfer, or prefill on decode (local).", Unit: "s", Queries: one(`avg by (work) (xpyd_price_per_token_seconds{$x})`, "{{work}}")},
		{Kind: graph, Title: "Price of a leg", About: "The part of its time that does not depend on its tokens.", Unit: "s", Queries: one(`avg by (work) (xpyd_price_per_leg_seconds{$x})`, "{{work}}")},
		{Kind: graph, Title: "Error of the price", About: "The median of the last 32 legs, as a part of the price.", Unit: "percentunit", Queries: one(`avg by (work) (xpyd_price_error_ratio{$x})`, "{{work}}")},
	}}
}
