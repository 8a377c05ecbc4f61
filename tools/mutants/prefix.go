package main

// prefixMutants: who is believed to have which blocks, and what that is worth.
func prefixMutants() []mutant {
	return []mutant{{
		name: "tenants with a cache_salt share blocks", file: "kvparams/blocks.go",
		old: `"truncation_side", "cache_salt":`,
		new: `"truncation_side":`,
		pkg: kvparamsPkg, test: "TestBlocksOfTwoRequests/cache_salt",
	}, {
		name: "a cache never loses a block", file: "router/prefixcache.go",
		old: "uint64(age)+uint64(blocks) <= uint64(c.capacity.Load())",
		new: "true",
		pkg: routerPkg, test: "TestCacheAges",
	}, {
		name: "a restarted engine keeps its cache", file: "router/prefixcache.go",
		old: "c.since.Store(c.blocks.Add(1))",
		new: "",
		pkg: routerPkg, test: "TestRestartForgets",
	}, {
		name: "a seat's last owner is believed", file: "router/prefixcache.go",
		old: "c.blocks.Store(s.ended[s.last] + seatGap)\n\t\tc.forget()",
		new: "",
		pkg: routerPkg, test: "TestSeatsAreGivenAgain",
	}, {
		name: "a backend that leaves keeps its seat", file: "router/prefix.go",
		old: "old.prefix.seats.leave(&b.cache)",
		new: "",
		pkg: routerPkg, test: "TestReloadsLeakNoSeats",
	}, {
		name: "a hot prefix herds", file: "router/policy_prefix.go",
		old: "load = b.backlog(q.now, o.rate)",
		new: "load = 0",
		pkg: routerPkg, test: "TestHotPrefixSpreads",
	}, {
		name: "decode by prefix overlooks what it computes", file: "router/policy_prefix.go",
		old: "load += b.local(q.now, o.rate)",
		new: "",
		pkg: routerPkg, test: "TestDecodeByPrefix/it_computes_a_long_prompt",
	}, {
		name: "decode by prefix crowds", file: "router/policy_prefix.go",
		old: "load = streams * o.block;",
		new: "load = 0 * streams;",
		pkg: routerPkg, test: "TestDecodeByPrefix/a_hundred_streams",
	}, {
		name: "cached tokens count as work", file: "router/lease.go",
		old: "l.tokens -= int64(cached)",
		new: "",
		pkg: routerPkg, test: "TestCachedTokensAreNoWork",
	}, {
		name: "a request does not bring its hashes", file: "proxy/reserve.go",
		old: "w.Prefix, w.Conversation = c.req.Blocks(), c.req.Conversation()",
		new: "",
		pkg: proxyPkg, test: "TestNextTurnFindsItsBlocks/prefix",
	}}
}
