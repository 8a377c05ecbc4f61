package main

// engineMutants are faults of what is read of the engines' own metrics.
func engineMutants() []mutant {
	return []mutant{{
		name: "requests waiting for a reason counted as waiting", file: "proxy/pollpage.go",
		old: `case "num_requests_waiting":`,
		new: `case "num_requests_waiting", "num_requests_waiting_by_reason":`,
		pkg: proxyPkg, test: "TestPages/by_reason_is_not_the_whole",
	}, {
		name: "counter of the old name summed with the new one", file: "proxy/pollpage.go",
		old: "return famQueriesOld, true",
		new: "return famQueries, true",
		pkg: proxyPkg, test: "TestPages/old_names_beside_new_ones",
	}, {
		name: "one rank's lie added to the other's truth", file: "proxy/pollpage.go",
		old: "r.n > 0 && !r.wild && !r.below",
		new: "r.n > 0 && !r.wild && r.sum >= 0",
		pkg: proxyPkg, test: "TestPages/one_rank_below_0",
	}, {
		name: "prefill times of an engine that pulls believed", file: "proxy/pollpage.go",
		old: "if !p[famQueueTime].below {",
		new: "if true {",
		pkg: proxyPkg, test: "TestRecordedPages/vllm-0.32.0/d-get-metrics.http",
	}, {
		name: "a server's error page read", file: "proxy/poll.go",
		old: "case err == nil && x.head.status != fasthttp.StatusOK:",
		new: "case err != nil && x.head.status != fasthttp.StatusOK:",
		pkg: proxyPkg, test: "TestEngineWithoutUsableMetrics/an_error",
	}, {
		name: "own requests in the other role counted as elsewhere", file: "proxy/poll.go",
		old: "n += o.InFlight()",
		new: "_ = o",
		pkg: proxyPkg, test: "TestEngineInBothPools",
	}, {
		name: "an engine that tells a part asked less often", file: "proxy/poll.go",
		old: "if told {",
		new: "if err == nil {",
		pkg: proxyPkg, test: "TestEngineThatTellsAPart",
	}}
}

// elsewhereMutants: how long what engines told counts, and for what.
func elsewhereMutants() []mutant {
	return []mutant{{
		name: "what an engine told holds for ever", file: "router/engine.go",
		old: "e != nil && now < e.until",
		new: "e != nil",
		pkg: routerPkg, test: "TestEngineStateCountsForItsTime",
	}, {
		name: "load from elsewhere does not fall", file: "router/engine.go",
		old: "min(1, left*3/2)",
		new: "min(1, left*1000)",
		pkg: routerPkg, test: "TestElsewhere/then_less",
	}, {
		name: "choices are not told of load from elsewhere", file: "router/engine.go",
		old: "if e.others > 0 {",
		new: "if false {",
		pkg: routerPkg, test: "TestLoadFromElsewhere/least_request/decode",
	}, {
		name: "replicas see their own requests only", file: "router/engine.go",
		old: "return n + b.elsewhere(now)",
		new: "return n",
		pkg: routerPkg, test: "TestReplicasSpreadEvenly/least_request",
	}, {
		name: "a chat's prefill waits behind others' prompts", file: "router/policy_prefix.go",
		old: "load = (load + o.each*others) / share",
		new: "load /= share",
		pkg: routerPkg, test: "TestLoadFromElsewhere/prefix/prefill",
	}, {
		name: "counters that fall are no restart", file: "router/engine.go",
		old: "return is >= 0 && is < was }",
		new: "return false && is < was }",
		pkg: routerPkg, test: "TestEngineRestart/no_start_told,_prompts_fell",
	}}
}
