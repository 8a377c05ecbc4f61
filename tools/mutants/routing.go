package main

// routingMutants: which backend a request belongs to, and how much of the load is whose.
func routingMutants() []mutant {
	return []mutant{{
		name: "affinity without a bound", file: "router/affinity.go",
		old: "> math.Ceil(full*share) {",
		new: "> math.Inf(1)*full {",
		pkg: routerPkg, test: "TestABusySessionIsBounded",
	}, {
		name: "all sessions have one second choice", file: "router/affinity.go",
		old: "mix(b.seed^key)",
		new: "mix(b.seed)",
		pkg: routerPkg, test: "TestSessionsGoToAnotherOnARetry",
	}, {
		name: "weights ignored", file: "router/pool.go",
		old: "p.weights[i] / most",
		new: "p.weights[i] / p.weights[i]",
		pkg: routerPkg, test: "TestReloadChangesWeights",
	}, {
		name: "a reload leaves weights unseen", file: "router/pool.go",
		old: "b.mark()\n",
		new: "",
		pkg: routerPkg, test: "TestReloadChangesWeights",
	}, {
		name: "a backend that recovers stays marked", file: "router/pick.go",
		old: "b.settle(q)\n",
		new: "",
		pkg: routerPkg, test: "TestPoliciesTakeWhoIsFitAgain",
	}, {
		name: "any backend serves any model", file: "router/models.go",
		old: "ids == nil || slices.Contains(*ids, id)",
		new: "ids == nil || len(id) > 0",
		pkg: routerPkg, test: "TestNoBackendOfTheModelIsLeft",
	}, {
		name: "prefill of another model than decode", file: "router/models.go",
		old: "if w.Model == nil && w.Peer != nil {",
		new: "if false {",
		pkg: routerPkg, test: "TestLegsWithoutAModelMatch",
	}, {
		name: "one model's queue holds up the others", file: "router/queue.go",
		old: " || s.Mixed(wt.want.Role)",
		new: "",
		pkg: routerPkg, test: "TestQueueIsNotHeldUpByAnotherModel",
	}, {
		name: "a release goes to an engine of another model", file: "proxy/release.go",
		old: "job.model = bytes.Clone(a.req.Model())",
		new: "job.model = nil",
		pkg: proxyPkg, test: "TestReleaseGoesToAnEngineOfTheModel",
	}, {
		name: "a session's header is not read", file: "proxy/reserve.go",
		old: "Key: c.session()",
		new: "Key: 0",
		pkg: proxyPkg, test: "TestSessionsKeepTheirEngines",
	}}
}
