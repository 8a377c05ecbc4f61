package main

// healthMutants: what is held against a backend, and for how long.
func healthMutants() []mutant {
	return []mutant{{
		name: "breaker fed at headers", file: "proxy/decode.go",
		old: "c.state.set(stateCommitted)\n",
		new: "c.state.set(stateCommitted)\n\tc.d.lease.Release(router.OK)\n",
		pkg: proxyPkg, test: "TestDecodeIsJudgedByTheEndOfItsStream",
	}, {
		name: "4xx feeds the breaker", file: "router/eject.go",
		old: "case ClientGone, ClientFault, KVLoad:",
		new: "case ClientGone, KVLoad:",
		pkg: routerPkg, test: "TestFailuresEject/4xx_do_not_count",
	}, {
		name: "client fault feeds the breaker", file: "router/eject.go",
		old: "case ClientGone, ClientFault, KVLoad:",
		new: "case ClientFault, KVLoad:",
		pkg: routerPkg, test: "TestFailuresEject/departures_do_not_count",
	}, {
		name: "active success clears an ejection", file: "router/health.go",
		old: "if oks := int(b.checkOKs.Add(1));",
		new: "b.lift(b.router.now())\n\tif oks := int(b.checkOKs.Add(1));",
		pkg: routerPkg, test: "TestEjectedBackendReturnsToPicks",
	}, {
		name: "more than half of a pool ejected", file: "router/eject.go",
		old: "if countEjected(pool, now) >= len(pool)/2 {",
		new: "if countEjected(pool, now) >= len(pool) {",
		pkg: routerPkg, test: "TestAtMostHalfIsEjected",
	}}
}

// retryMutants: when and where a request is tried again, and until when.
func retryMutants() []mutant {
	return []mutant{{
		name: "retries that are over at once are not bounded", file: "router/retry.go",
		old: "r.allowed < 1 && !must",
		new: "false",
		pkg: routerPkg, test: "TestRetryRateIsBounded",
	}, {
		name: "retry without budget", file: "proxy/reserve.go",
		old: "if c.s.router.TakeRetry(c.s.live.Load(), time.Since(failed) > router.RetrySettle) {",
		new: "if c.s.router.TakeRetry(c.s.live.Load(), false); true {",
		pkg: proxyPkg, test: "TestRetriesShareABudget",
	}, {
		name: "retries wait for requests that do not come", file: "proxy/reserve.go",
		old: "time.Since(failed) > router.RetrySettle)",
		new: "false)",
		pkg: proxyPkg, test: "TestRetriesOfAnOutageAreNotDeniedForEver",
	}, {
		name: "a dial to the engine that died is taken for the only failure", file: "proxy/broken.go",
		old: "if isDial(err) && !isOurs(err) {",
		new: "if false {",
		pkg: proxyPkg, test: "TestDeadlyRequestEndsAfterTwoEngines/no_prefill_pool/stream=false",
	}, {
		name: "a third engine may have what two died of", file: "proxy/reserve.go",
		old: "if c.deadly() {",
		new: "if false {",
		pkg: proxyPkg, test: "TestDeadlyRequestEndsAfterTwoEngines/one_prefill,_then_one_decode/stream=false",
	}, {
		name: "a prompt that cost an engine is drained", file: "proxy/release.go",
		old: "if a.broken == 0 && (",
		new: "if (",
		pkg: proxyPkg, test: "TestDeadlyRequestEndsAfterTwoEngines/decode_dies,_handles_are_drained/stream=false",
	}, {
		name: "retry budget without end", file: "router/retry.go",
		old: "r.retries.running.Add(1) > limit",
		new: "r.retries.running.Add(1) > 100*limit",
		pkg: routerPkg, test: "TestRetryBudget",
	}, {
		name: "a failed prefill waits for a retry although decode could serve", file: "proxy/prefill.go",
		old: "patience = 0 // D can",
		new: "_ = patience // D can",
		pkg: proxyPkg, test: "TestSpentRetriesEndInDecodeAlone",
	}, {
		name: "a handle that cannot be used is not tried elsewhere", file: "proxy/suspect.go",
		old: "outcome: router.Gateway, next: true, sent: true, degrade: reasonBadHandle}",
		new: "outcome: router.Gateway, sent: true, degrade: reasonBadHandle}",
		pkg: proxyPkg, test: "TestPrefillEngineWithUnusableHandles/port",
	}, {
		name: "a handle that cannot be used does not count against its engine", file: "proxy/suspect.go",
		old: "outcome: router.Gateway, next: true, sent: true, degrade: reasonBadHandle}",
		new: "outcome: router.ClientFault, next: true, sent: true, degrade: reasonBadHandle}",
		pkg: proxyPkg, test: "TestPrefillEngineWithUnusableHandles/port",
	}, {
		name: "old failures of an idle pool make it unready", file: "proxy/soundness.go",
		old: "h.failures == 0 || now.Sub(h.last) > h.pace.gap",
		new: "h.failures == 0",
		pkg: proxyPkg, test: "TestFailuresMakeUnready/old_failures_of_an_idle_pool",
	}, {
		name: "replicas flap as often as the pool does", file: "proxy/soundness.go",
		old: " && !now.Before(h.hold)",
		new: "",
		pkg: proxyPkg, test: "TestReplicasDoNotFlapTogether",
	}, {
		name: "replicas become unready together", file: "proxy/soundness.go",
		old: "now, lot(h.pace.patience, 0.5)",
		new: "now, h.pace.patience",
		pkg: proxyPkg, test: "TestReplicasDoNotFlapTogether",
	}, {
		name: "unready by a probe that a success has overtaken", file: "proxy/soundness.go",
		old: "case h.due(now):",
		new: "default:",
		pkg: proxyPkg, test: "TestProbeThatASuccessOvertakes",
	}, {
		name: "the share of requests without a prefill is passed", file: "router/degrade.go",
		old: "for n := s.router.degraded.Load(); n < limit;",
		new: "for n := s.router.degraded.Load(); n < limit+1;",
		pkg: routerPkg, test: "TestDegradeCap",
	}, {
		name: "whoever holds a lease gets past the line for the share", file: "router/degrade.go",
		old: "if s.Capped() && s.router.queues[degradedLine].waiting.Load() > 0 || !s.takeShare() {",
		new: "if !s.takeShare() {",
		pkg: routerPkg, test: "TestSlotDoesNotPassTheLineForTheShare",
	}, {
		name: "reload swaps half", file: "router/router.go",
		old: "if s.decode, err = r.newPool(Decode, cfg.Decode, cfg.ChosenDecodePolicy(), old.decode); err != nil {",
		new: "if s.decode, err = r.newPool(Decode, cfg.Decode, cfg.ChosenDecodePolicy(), old.decode); err != nil {\n\t\ts.decode = old.decode\n\t}\n\tif false {",
		pkg: routerPkg, test: "TestReloadIsAllOrNothing/bad_decode_URL",
	}, {
		name: "Retry-After of a backend ignored", file: "proxy/prefill.go",
		old: "e.RetryAfter = seconds(x.head.retryAfter)",
		new: "e.RetryAfter = 0",
		pkg: proxyPkg, test: "TestRetryAfterOfABackendReachesTheClient",
	}, {
		name: "Retry-After ignored by a retry", file: "proxy/reserve.go",
		old: "pause = min(asked, time.Until(c.times.end))",
		new: "",
		pkg: proxyPkg, test: "TestRetryWaitsForRetryAfter",
	}, {
		name: "Retry-After ignored by picks", file: "router/eject.go",
		old: "b.refusedUntil.CompareAndSwap(was, until)",
		new: "true",
		pkg: proxyPkg, test: "TestAnotherBackendNeedNotWaitForRetryAfter",
	}, {
		name: "a request without an end", file: "proxy/exchange.go",
		old: "x.up, x.end = u, req.end",
		new: "x.up = u",
		pkg: proxyPkg, test: "TestOneDeadlineForTheWholeRequest/the_stream_never_pauses",
	}, {
		name: "one stalled stream ejects its backend", file: "proxy/upstreams.go",
		old: ">= s.cfg.Timeouts.StreamIdle+rearm {",
		new: ">= 0 {",
		pkg: proxyPkg, test: "TestBackendIsEjectedWhenAllOfItsStreamsStall",
	}}
}

// pairMutants: engines that are new to each other, or cannot hand blocks over.
func pairMutants() []mutant {
	return []mutant{{
		name: "no warm-up", file: "proxy/warm.go",
		old: "w.s.router.Snapshot().Chill(b, avoid)",
		new: "",
		pkg: proxyPkg, test: "TestEachPairIsWarmedUpOnce",
	}, {
		name: "cold pair gets requests", file: "router/pick.go",
		old: "(!q.pairs.cold || !q.pairs.isCold(b, q.now))",
		new: "true",
		pkg: routerPkg, test: "TestColdPairsArePassedOver",
	}, {
		name: "failed warm-up keeps its blocks", file: "proxy/warm.go",
		old: "u.s.releases.start(abandoned{",
		new: "func(abandoned) {}(abandoned{",
		pkg: proxyPkg, test: "TestFailedWarmUpLeavesNothingBehind",
	}, {
		name: "a warm-up that breaks off blames the pair", file: "proxy/warm.go",
		old: "} else if news(err) {",
		new: "} else if news(err) || true {",
		pkg: proxyPkg, test: "TestWarmUpThatBreaksOffBlamesNobody",
	}, {
		name: "a request is the probe of a banned pair", file: "router/cold.go",
		old: "until <= now+int64(probeAhead)",
		new: "until <= now-int64(probeAhead)",
		pkg: routerPkg, test: "TestBannedPairIsDueBeforeItsBanEnds",
	}}
}

// moveMutants: legs whose engines go down, and whose fault a dial is.
func moveMutants() []mutant {
	return []mutant{{
		name: "decode waits for a prefill that is down", file: "proxy/depends.go",
		old: "c.handoff.live() {\n\t\tc.d.source.On(c.handoff.from, c.onSourceDown)",
		new: "c.handoff.live() {",
		pkg: proxyPkg, test: "TestDecodeThatHangsOnADownPrefillMoves/completions",
	}, {
		name: "a whole answer is cut as its prefill goes down", file: "proxy/depends.go",
		old: "at = end.Add(-c.s.cfg.KV.LeaseMargin)",
		new: "",
		pkg: proxyPkg, test: "TestWholeAnswerOutlivesItsPrefills",
	}, {
		name: "a whole answer waits for its prefill beyond the lease", file: "proxy/depends.go",
		old: "at = end.Add(-c.s.cfg.KV.LeaseMargin)",
		new: "return",
		pkg: proxyPkg, test: "TestLastRoundWaitsForItsPrefillWithinTheLease",
	}, {
		name: "a whole answer waits for a prefill that stands still, as its lease has passed", file: "proxy/depends.go",
		old: " && !c.handoff.from.Still()",
		new: "",
		pkg: proxyPkg, test: "TestPrefillFreezesUnderARequestThatDecodeQueues/last=false",
	}, {
		name: "a whole answer is cut as its prefill is killed, long after", file: "proxy/depends.go",
		old: " && !c.handoff.from.Still()",
		new: " && false",
		pkg: proxyPkg, test: "TestLongWholeAnswerOutlivesItsPrefill",
	}, {
		name: "a prefill that came back is watched no longer", file: "proxy/depends.go",
		old: "c.d.source.On(c.handoff.from, c.onSourceDown) // which tells once",
		new: "",
		pkg: proxyPkg, test: "TestPrefillFreezesUnderARequestThatDecodeQueues/last=true",
	}, {
		name: "a prefill that was removed is checked no longer", file: "proxy/probe.go",
		old: "!b.InUse()",
		new: "b.InFlight() == 0",
		pkg: proxyPkg, test: "TestRemovedPrefillThatFreezesIsNoticed",
	}, {
		name: "an answer is lost as its prefill goes down", file: "proxy/prefill.go",
		old: "c.p.x.interrupt(time.Now().Add(c.s.downGrace))",
		new: "c.p.x.interrupt(time.Now())\n\tc.p.x.halfClose()",
		pkg: proxyPkg, test: "TestPrefillThatAnswersAsItGoesDown/completions",
	}, {
		name: "a first token is lost as its backend goes down", file: "proxy/depends.go",
		old: "(c.d.cutOff.Load() || c.d.down.Load())",
		new: "c.d.cutOff.Load()",
		pkg: proxyPkg, test: "TestFirstTokenAndDownAtOnce/decode",
	}, {
		name: "a dead engine is our fault", file: "proxy/descriptors.go",
		old: "if !isOurs(e) {",
		new: "if isOurs(e) {\n\t\t\treturn true\n\t\t}\n\t\tif false {",
		pkg: proxyPkg, test: "TestDeadEngineIsNotOurFault",
	}}
}
