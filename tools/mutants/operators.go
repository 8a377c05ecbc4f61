package main

// operatorMutants: what operators are told of paths, settings, reloads and models.
func operatorMutants() []mutant {
	return []mutant{{
		name: "a path that was not taken is told", file: "proxy/completion.go",
		old: "if c.reached {",
		new: "if c.path != \"\" {",
		pkg: proxyPkg, test: "TestNoPathWhereNoBackendWasReached",
	}, {
		name: "a path that was not taken is counted", file: "proxy/finish.go",
		old: "if c.reached {\n\t\tm.Decision",
		new: "if c.path != \"\" {\n\t\tm.Decision",
		pkg: proxyPkg, test: "TestNoPathWhereNoBackendWasReached",
	}, {
		name: "both pools in step", file: "router/policy_round_robin.go",
		old: "t += t / cycle",
		new: "_ = cycle",
		pkg: routerPkg, test: "TestRoundRobinPairsAllWithAll",
	}, {
		name: "a model of decode alone goes to prefill", file: "proxy/completion.go",
		old: "c.snap.OnDecodeOnly(c.req.Model())",
		new: "false",
		pkg: proxyPkg, test: "TestModelOnDecodeOnly",
	}, {
		name: "a prefill backend not known yet has no model", file: "router/models.go",
		old: "all.whole = false",
		new: "all.whole = true",
		pkg: routerPkg, test: "TestModelsOfOnePool",
	}, {
		name: "a secret in the line of a reload", file: "configchange.go",
		old: "case k.secret():",
		new: "case false:",
		pkg: rootPkg, test: "TestChangesAreFitForTheLog",
	}, {
		name: "a changed weight is not told", file: "configchange.go",
		old: "case old != weight:",
		new: "case false:",
		pkg: rootPkg, test: "TestReloadSaysWhatChanged",
	}, {
		name: "warnings again at each reload", file: "lifetime.go",
		old: "!slices.Contains(before, w)",
		new: "!slices.Contains(before, \"\")",
		pkg: rootPkg, test: "TestReloadSaysWhatChanged",
	}, {
		name: "any name is near", file: "configkey.go",
		old: "max(1, len(name)/3)",
		new: "1 << 20",
		pkg: rootPkg, test: "TestConfigRefusesFiles",
	}, {
		name: "a reload takes a pipe for an empty file", file: "configread.go",
		old: "if regular && ",
		new: "if false && ",
		pkg: rootPkg, test: "TestConfigurationFromAPipe",
	}, {
		name: "an engine hands blocks to itself", file: "configrules.go",
		old: "other == base {",
		new: "other == \"\" {",
		pkg: rootPkg, test: "TestOneEngineInBothPools",
	}, {
		name: "a key that nobody asks for", file: "config.go",
		old: "distance(short, near) <= 2",
		new: "distance(short, near) < 0",
		pkg: rootPkg, test: "TestVariableThatWasMeantForKeys",
	}, {
		name: "a whole answer with a first token", file: "proxy/finish.go",
		old: "if c.d.streamed && !t.first.IsZero() {",
		new: "if t.first = time.Now(); true {",
		pkg: proxyPkg, test: "TestOnlyStreamsHaveATTFT",
	}, {
		name: "a log without a reader ends the process", file: "serve.go",
		old: "signal.Ignore(syscall.SIGPIPE)",
		new: "",
		pkg: rootPkg, test: "TestLogReaderThatGoesAway",
	}, {
		name: "lines for a stalled reader pile up", file: "logbuffer.go",
		old: "if b.waiting+len(line) > logQueueSize {",
		new: "if b == nil {",
		pkg: rootPkg, test: "TestLogThatIsFullDropsAndTells",
	}, {
		name: "lines are dropped in silence", file: "logbuffer.go",
		old: "b.lost += p.over",
		new: "",
		pkg: rootPkg, test: "TestLogThatIsFullDropsAndTells",
	}}
}
