package main

// priceMutants: when a request gets a prefill of its own.
func priceMutants() []mutant {
	return []mutant{{
		name: "a prompt counts whole until it is done", file: "router/backlog.go",
		old: "return left(float64(b.free.Load()-now)*rate, float64(n), b.inflight.Load())",
		new: "return float64(n)",
		pkg: routerPkg, test: "TestPrefixWaitsForWhatIsNearlyDone/nearly_done",
	}, {
		name: "what P has in flight costs nothing", file: "router/decide.go",
		old: "ahead := queued + b.backlog(now, rateOf(p.pace())) + ",
		new: "ahead := ",
		pkg: routerPkg, test: "TestAutoTakesTheCheaperWay",
	}, {
		name: "what D computes itself costs nothing", file: "router/decide.go",
		old: "wait := b.local(now, rateOf(p.localPace()))",
		new: "wait := 0.0",
		pkg: routerPkg, test: "TestAutoTakesTheCheaperWay",
	}, {
		name: "streams that stand still cost nothing", file: "router/decide.go",
		old: "stallWeight = 0.05",
		new: "stallWeight = 0.0",
		pkg: routerPkg, test: "TestAutoTakesTheCheaperWay",
	}, {
		name: "the dearer way is never looked at again", file: "router/decide.go",
		old: "if r.explores(out, prompt) {",
		new: "if false && r.explores(out, prompt) {",
		pkg: routerPkg, test: "TestDecideExplores",
	}, {
		name: "prices of the past weigh as much as those of now", file: "router/price.go",
		old: "keep = min(keep, (most-1)/max(l.w, 1))",
		new: "keep, _ = 1, most",
		pkg: routerPkg, test: "TestLineFollowsWithinAMinute",
	}, {
		name: "the threshold looks at the prompt and not at what is uncached", file: "router/decide.go",
		old: "fresh := max(0, prompt.Tokens-prompt.CachedDecode)",
		new: "fresh := prompt.Tokens",
		pkg: routerPkg, test: "TestDecideModes",
	}}
}
