package main

// retries breaks the rules about what may be tried again, the health of backends, and answers whose
// engine goes down.
func retries() []mutant {
	return []mutant{{
		name: "breaker fed at headers", in: "(*completion).commit",
		old:  "c.state.set(stateCommitted)",
		new:  "c.state.set(stateCommitted)\n\tc.d.Lease.Release(router.OK)",
		test: "TestDecodeIsJudgedByTheEndOfItsStream",
	}, {
		name: "4xx feeds the breaker", in: "(*Backend).record",
		old:  "case ClientGone, NoVerdict, ClientFault, KVLoad:",
		new:  "case ClientGone, NoVerdict, KVLoad:",
		test: "TestFailuresEject/4xx_do_not_count",
	}, {
		name: "client fault feeds the breaker", in: "(*Backend).record",
		old:  "case ClientGone, NoVerdict, ClientFault, KVLoad:",
		new:  "case ClientFault, KVLoad:",
		test: "TestFailuresEject/departures_do_not_count",
	}, {
		name: "active success clears an ejection", in: "(*Backend).judge",
		old:  "if oks := int(b.checkOKs.Add(1));",
		new:  "b.lift(b.router.now())\n\tif oks := int(b.checkOKs.Add(1));",
		test: "TestEjectedBackendReturnsToPicks",
	}, {
		name: "more than half of a pool ejected", in: "(*Router).eject",
		old:  "if countEjected(pool, now) >= len(pool)/2 {",
		new:  "if countEjected(pool, now) >= len(pool) {",
		test: "TestAtMostHalfIsEjected",
	}, {
		name: "retries that are over at once are not bounded", in: "(*retries).take",
		old:  "r.allowed < 1 && !must",
		new:  "false",
		test: "TestRetryRateIsBounded",
	}, {
		name: "retry without budget", in: "(*completion).mayRetry",
		old:  "if c.s.router.TakeRetry(c.s.live.Load(), time.Since(failed) > router.RetrySettle) {",
		new:  "if c.s.router.TakeRetry(c.s.live.Load(), false); true {",
		test: "TestRetriesShareABudget",
	}, {
		name: "retries wait for requests that do not come", in: "(*completion).mayRetry",
		old:  "time.Since(failed) > router.RetrySettle)",
		new:  "false)",
		test: "TestRetriesOfAnOutageAreNotDeniedForEver",
	}, {
		name: "a dial to the engine that died is taken for the only failure", in: "(*Exchange).repeat",
		old:  "if IsDial(err) && !IsLocal(err) {",
		new:  "if false {",
		test: "TestDeadlyRequestEndsAfterTwoEngines/no_prefill_pool/stream=false",
	}, {
		name: "a third engine may have what two died of", in: "(*completion).mayRetry",
		old:  "if c.deadly() {",
		new:  "if false {",
		test: "TestDeadlyRequestEndsAfterTwoEngines/one_prefill,_then_one_decode/stream=false",
	}, {
		name: "a prompt that cost an engine is drained", in: "(*Server).newRelease",
		old:  "if a.broken == 0 && (",
		new:  "if (",
		test: "TestDeadlyRequestEndsAfterTwoEngines/decode_dies,_handles_are_drained/stream=false",
	}, {
		name: "retry budget without end", in: "(*Router).TakeRetry",
		old:  "r.retries.running.Add(1) > limit",
		new:  "r.retries.running.Add(1) > 100*limit",
		test: "TestRetryBudget",
	}, {
		name: "a failed prefill waits for a retry although decode could serve", in: "(*prefillLeg).another",
		old:  "patience = 0",
		new:  "_ = patience",
		test: "TestSpentRetriesEndInDecodeAlone",
	}, {
		name: "a retry goes back to the engine that failed, because the other is ejected", in: "(*decodeLeg).fit",
		old:  "b.Fit() || d.ejected && b.State() != router.Down",
		new:  "b.Fit()",
		test: "TestRetryTakesAnEjectedEngine/nixl",
	}, {
		name: "legs together: a failed prefill is the client's error", in: "pair.run",
		old:  "return c.decodeInstead(failed)",
		new:  "return failed",
		test: "TestSpentRetriesEndInDecodeAloneWithEachConnector/mooncake",
	}, {
		name: "legs together: no other prefill is asked", in: "pair.run",
		old:  "case c.p.another(b, failed):",
		new:  "case false:",
		test: "TestConnectorsOutliveAPrefillEngine",
	}, {
		name: "a handle that cannot be used is not tried elsewhere", in: "classifyPrefill",
		old:  "Outcome: router.Gateway, Retry: RetryPaid, Degrade: ReasonBadHandle}",
		new:  "Outcome: router.Gateway, Degrade: ReasonBadHandle}",
		test: "TestPrefillEngineWithUnusableHandles/port",
	}, {
		name: "a handle that cannot be used does not count against its engine", in: "classifyPrefill",
		old:  "Outcome: router.Gateway, Retry: RetryPaid, Degrade: ReasonBadHandle}",
		new:  "Outcome: router.ClientFault, Retry: RetryPaid, Degrade: ReasonBadHandle}",
		test: "TestPrefillEngineWithUnusableHandles/port",
	}, {
		name: "the share of requests without a prefill is passed", in: "(*Snapshot).takeShare",
		old:  "for n := s.router.degraded.Load(); n < limit;",
		new:  "for n := s.router.degraded.Load(); n < limit+1;",
		test: "TestDegradeCap",
	}, {
		name: "whoever holds a lease gets past the line for the share", in: "(*Snapshot).Degrade",
		old:  "if s.Capped() && s.router.queues[degradedLine].waiting.Load() > 0 || !s.takeShare() {",
		new:  "if !s.takeShare() {",
		test: "TestSlotDoesNotPassTheLineForTheShare",
	}, {
		name: "reload swaps half", in: "(*Router).build",
		old:  "if s.decode, err = r.newPool(Decode, cfg, old.decode); err != nil {",
		new:  "if s.decode, err = r.newPool(Decode, cfg, old.decode); err != nil {\n\t\ts.decode = old.decode\n\t}\n\tif false {",
		test: "TestReloadIsAllOrNothing/bad_decode_URL",
	}, {
		name: "Retry-After of a backend ignored", in: "(*Server).tellRefusal",
		old:  "f.Refusal(c, x.Head.Wait())",
		new:  "f.Refusal(c, 0)",
		test: "TestRetryAfterOfABackendReachesTheClient",
	}, {
		name: "Retry-After ignored by a retry", in: "(*completion).mayRetry",
		old:  "pause = min(asked, time.Until(c.times.end))",
		new:  "",
		test: "TestRetryWaitsForRetryAfter",
	}, {
		name: "Retry-After ignored by picks", in: "(*vitals).setRefused",
		old:  "v.refusedUntil.CompareAndSwap(was, until)",
		new:  "true",
		test: "TestAnotherBackendNeedNotWaitForRetryAfter",
	}, {
		name: "a request without an end", in: "(*Exchange).try",
		old:  "x.begin(c, req.End, deadline)",
		new:  "x.begin(c, time.Time{}, deadline)",
		test: "TestOneDeadlineForTheWholeRequest/the_stream_never_pauses",
	}, {
		name: "one stalled stream ejects its backend", in: "(*Set).Stalled",
		old:  "s.cfg.Silence()",
		new:  "0",
		test: "TestBackendIsEjectedWhenAllOfItsStreamsStall",
	}, {
		name: "decode waits for a prefill that is down", in: "(*decodeLeg).watched",
		old:  "c.handoff.Watch(&d.source, d.onSourceDown)",
		new:  "",
		test: "TestDecodeThatHangsOnADownPrefillMoves/completions",
	}, {
		name: "decode waits for a prefill that has restarted, as its metrics say", in: "(*Backend).SetEngine",
		old:  "b.Restarted(time.Now().Add(time.Duration(was.at - e.at)))",
		new:  "",
		test: "TestDecodeDoesNotWaitForARestartedPrefill/nixl-push/chat",
	}, {
		name: "decode waits for a prefill that has restarted, as its handles say", in: "(*Set).Seen",
		old:  "b.Restarted(time.Now())",
		new:  "",
		test: "TestTheNextHandleTellsOfARestart/nixl-push/chat",
	}, {
		name: "a watch that comes after a restart is not told", in: "(*Watch).enter",
		old:  " || d.gone(w)",
		new:  "",
		test: "TestRestartIsBeforeTheEngineCameUp",
	}, {
		name: "what an engine has given since it came up counts as gone", in: "(*downList).restart",
		old:  "d.restarted = d.up",
		new:  "",
		test: "TestRestartIsBeforeTheEngineCameUp",
	}, {
		name: "a panic of decode leaves its watch", in: "(*decodeLeg).watched",
		old:  "defer d.source.Off()\n\treturn d.attempt(b)",
		new:  "f := d.attempt(b)\n\td.source.Off()\n\treturn f",
		test: "TestPanicLeavesNoWatch",
	}, {
		name: "a handle of an engine that has restarted is drained", in: "(*release).run",
		old:  " && !j.gone()",
		new:  "",
		test: "TestAHandleOfARestartedPrefillIsNotSent",
	}, {
		name: "a whole answer is cut as its prefill goes down", in: "(*decodeLeg).sourceDown",
		old:  "at = end.Add(-c.s.cfg.KV.LeaseMargin)",
		new:  "",
		test: "TestWholeAnswerOutlivesItsPrefills",
	}, {
		name: "a whole answer waits for its prefill beyond the lease", in: "(*decodeLeg).sourceDown",
		old:  "at = end.Add(-c.s.cfg.KV.LeaseMargin)",
		new:  "return",
		test: "TestLastRoundWaitsForItsPrefillWithinTheLease",
	}, {
		name: "a whole answer waits for a prefill that stands still, as its lease has passed", in: "(*decodeLeg).sourceDown",
		old:  "&& !c.handoff.From().Hung()",
		new:  "",
		test: "TestPrefillFreezesUnderARequestThatDecodeQueues/last=false",
	}, {
		name: "a whole answer is cut as its prefill is killed, long after", in: "(*decodeLeg).sourceDown",
		old:  "&& !c.handoff.From().Hung()",
		new:  "&& false",
		test: "TestLongWholeAnswerOutlivesItsPrefill",
	}, {
		name: "a whole answer beside its prefill is cut as that goes down, long after", in: "(*decodeLeg).sourceDown",
		old:  "at.After(c.times.prefilled.Add(c.s.cfg.KV.Lease))",
		new:  "false",
		test: "TestWholeAnswerBesideAPrefillThatGoesDownIsLeftAlone/mooncake",
	}, {
		name: "decode waits for a prefill beside it that is down", in: "(*decodeLeg).watched",
		old:  "c.grace().Finishes",
		new:  "false",
		test: "TestDecodeThatWaitsForADownPrefillBesideItMoves/chat_streamed",
	}, {
		name: "a prefill that came back is watched no longer", in: "(*decodeLeg).sourceBack",
		old:  "c.handoff.Watch(&d.source, d.onSourceDown)",
		new:  "",
		test: "TestPrefillFreezesUnderARequestThatDecodeQueues/last=true",
	}, {
		name: "a prefill that was removed is checked no longer", in: "(*prober).watch",
		old:  "!b.InUse()",
		new:  "b.InFlight() == 0",
		test: "TestRemovedPrefillThatFreezesIsNoticed",
	}, {
		name: "an answer is lost as its prefill goes down", in: "(*prefillLeg).down",
		old:  "p.X.Cut(leg.CutDown, time.Now().Add(p.c.s.downGrace))",
		new:  "p.X.Cut(leg.CutDown, time.Now())\n\tp.X.HalfClose()",
		test: "TestPrefillThatAnswersAsItGoesDown/completions",
	}, {
		name: "a first token is lost as its backend goes down", in: "(*Attempt).Run",
		old:  "a.X.Uncut(CutDown, CutSource, CutLate)",
		new:  "a.X.Uncut(CutSource, CutLate)",
		test: "TestFirstTokenAndDownAtOnce/decode",
	}, {
		name: "failed legs start checks in a row", in: "(*checker).await",
		old:  "soon := last.Add(least)",
		new:  "soon := last",
		test: "TestChecksAfterFailedLegs",
	}, {
		name: "the only engine loses its legs as its checks hang", in: "(*Backend).Irreplaceable",
		old:  "return b.hung.Load() && ",
		new:  "return false && b.hung.Load() && ",
		test: "TestOnlyEngineWhoseChecksHangKeepsItsLegs/prefill,_none,_completions",
	}, {
		name: "a complete answer is no progress", in: "(*Exchange).Complete",
		old:  "x.up.goesOn(time.Now())",
		new:  "_ = x",
		test: "TestCompleteAnswersAreProgress/whole",
	}, {
		name: "a dead engine is our fault", in: "IsLocal",
		old:  "if !IsLocal(e) {",
		new:  "if IsLocal(e) {\n\t\t\treturn true\n\t\t}\n\t\tif false {",
		test: "TestDeadEngineIsNotOurFault",
	}, {
		name: "an engine that was not asked is wedged", in: "(*Row).Look",
		old:  "quiet >= doubt+patience && !r.asked.IsZero() && s.At.Sub(r.asked) >= patience",
		new:  "quiet >= doubt+patience",
		test: "TestNoEngineIsWedgedUnasked",
	}, {
		name: "a canary that came back changes nothing", in: "(*Row).begins",
		old:  "since = r.shown",
		new:  "_ = r.shown",
		test: "TestSilence",
	}, {
		name: "those who give up hide that nothing comes", in: "(*Client).repay",
		old:  "u.debt.owed == 0 && answered",
		new:  "u.debt.owed == 0",
		test: "TestDebtOutlivesThoseWhoGiveUp",
	}, {
		name: "the head of a stream is an answer", in: "(*debtor).headCame",
		old:  "|| x.Head.Status == http.StatusOK && x.IsEventStream()",
		new:  "",
		test: "TestDebt",
	}, {
		name: "legs stay on a wedged engine", in: "Wedge",
		old:  "return w.of == ofLeg",
		new:  "return false",
		test: "TestWedge",
	}, {
		name: "the health check brings a wedged engine back", in: "(*Backend).judge",
		old:  "if b.Trouble.down() {",
		new:  "if false {",
		test: "TestWedge",
	}, {
		name: "the streams of a wedged engine wait", in: "(*decodeLeg).decode",
		old:  "d.Lease.OnWedged(d.onDown)",
		new:  "",
		test: "TestStreamsOfAWedgedEngineEnd",
	}, {
		name: "a slow engine gets as much as the others", in: "Slowed",
		old:  "b.setWeight(b.Trouble.weight())",
		new:  "",
		test: "TestSlowEngineGetsItsShare",
	}, {
		name: "an engine with other GPUs is slow for ever", in: "(*speedRow).look",
		old:  "if !speed.Alike {",
		new:  "if false {",
		test: "TestSlowEngines",
	}}
}
