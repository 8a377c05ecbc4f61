package main

// handles breaks the rules about handles: each is used once, in time, or given back. It also has
// leases, and the clients, processes and panics that end a completion.
func handles() []mutant {
	return []mutant{{
		name: "a client sees a handle in a refusal", in: "(*completion).refusedLeg",
		old:  "told.Raw = nil",
		new:  "_ = told",
		test: "TestRefusalThatQuotesTheHandle/nixl",
	}, {
		name: "a stream holds the body of a prefill leg that has ended", in: "pair.prefill",
		old:  "if s.users.Add(-1) == 0 {",
		new:  "if s.users.Add(-1) == 0 && false {",
		test: "TestStreamHoldsNothingOfItsRequest/sglang",
	}, {
		name: "encodings go to a second leg", in: "(*Run).Forget",
		old:  "r.members = nil",
		new:  "_ = r.members",
		test: "TestEncodingsGoToTheFirstRoundAlone",
	}, {
		name: "encodings from any host", in: "(*scanner).encodings",
		old:  "if !ok {",
		new:  "if !ok && instead != \"\" {",
		test: "TestEncodingsOfForeignHosts",
	}, {
		name: "encode legs outlive their client", in: "(*Run).Cut",
		old:  "r.legs[i].X.Cut(ended, time.Now())",
		new:  "_, _ = i, ended",
		test: "TestClientLeavesDuringEncode",
	}, {
		name: "a second round encodes again", in: "(*completion).encode",
		old:  "c.round.n > 1 || ",
		new:  "",
		test: "TestEncodingsGoToTheFirstRoundAlone",
	}, {
		name: "no release", in: "(*completion).abandon",
		old:  "c.handoff.Release(a)",
		new:  "c.handoff.End(handoff.Burnt)",
		test: "TestClientLeavesInEachPhase/prefill_ending/close",
	}, {
		name: "one-token drain not read to its end", in: "(*release).try",
		old:  "if err == nil {\n\t\tanswer, err =",
		new:  "if false {\n\t\tanswer, err =",
		test: "TestDrainCutShortIsTriedElsewhere",
	}, {
		name: "handle used twice after a reset", in: "(*decodeLeg).attempt",
		old:  "again := handle.None() && (",
		new:  "again := (",
		test: "TestHandleGoesToOneDecodeRequest/rst",
	}, {
		name: "leg kept on a fresh connection although it must not", in: "(*Exchange).Do",
		old:  "if err == nil || !again {",
		new:  "if err == nil {",
		test: "TestNoSecondTryForAHandle",
	}, {
		name: "handle used after lease − margin", in: "(*Handoff).Fresh",
		old:  "-h.k.cfg.KV.LeaseMargin",
		new:  "",
		test: "TestHandleOlderThanItsLeaseIsNotSent",
	}, {
		name: "handle not looked at after a wait for a slot", in: "(*decodeLeg).decode",
		old:  "&& !c.handoff.FreshFor(d.Lease.Backend)",
		new:  "&& false",
		test: "TestHandleThatAgedInTheQueueIsNotSent",
	}, {
		name: "second round on a kept connection", in: "(*completion).request",
		old:  "Fresh: c.round.n > 1",
		new:  "Fresh: false",
		test: "TestSecondRoundTakesAFreshConnection",
	}, {
		name: "same handle after 5xx", in: "(*decodeLeg).rejected",
		old:  "return c.refusedLeg(",
		new:  "if status == 500 {\n\t\tc.handoff.Unsent()\n\t\ttold, _ := c.s.tellRefusal(f, c.id, b, &d.X, body)\n\t\treturn &leg.Failure{Verdict: fault.Verdict{Code: fault.CodeDecodeFailed, Outcome: router.Refused, Retry: fault.RetryFree}, Told: told}\n\t}\n\treturn c.refusedLeg(",
		test: "TestHandleGoesToOneDecodeRequest/status=500",
	}, {
		name: "P's late answer dropped", in: "(*prefillLeg).exchange",
		old:  "err = p.lateAnswer(err)",
		new:  "p.X.HalfClose()",
		test: "TestLateAnswerOfPrefillIsReleased",
	}, {
		name: "wrong handle member not checked", in: "(*handleReader).valid",
		old:  "return ok && port >= 1 && port <= 65535",
		new:  "return ok || !ok",
		test: "TestUnusableHandlesNeverReachDecode/port-high",
	}, {
		name: "tokens of another prompt go to decode", in: "(promptIDs).of",
		old:  "if p.n == 0 || p.n != tokens {",
		new:  "if p.n == 0 {",
		test: "TestPromptIDsOfAPrefillAnswer",
	}, {
		name: "tokens of the prefill never reach decode", in: "(Reuse).appendHandle",
		old:  "if len(h.prompt) == 0 || !u.wants(r) {",
		new:  "if len(h.prompt) >= 0 {",
		test: "TestDecodeGetsTheTokensOfThePrefill/long",
	}, {
		name: "tokens asked for although the answer may be too large", in: "(Reuse).wants",
		old:  " && size <= u.Answer/idBytes",
		new:  "",
		test: "TestDecodeGetsTheTokensOfThePrefill/the_answer_might_be_too_large",
	}, {
		name: "missing handle member not checked", in: "(*handleReader).fault",
		old:  "if r.seen&(1<<i) == 0 {",
		new:  "if r.seen&(1<<i) == 0 && r.first > 0 {",
		test: "TestUnusableHandlesNeverReachDecode/no-blocks",
	}, {
		name: "a pushed handle drained under another id", in: "(*Handoff).newRelease",
		old:  "job.id = a.LegID //",
		new:  "job.id = a.LegID + \"-drain\" //",
		test: "TestConnectorsGiveBackWhatNoDecodeReads/nixl-push",
	}, {
		name: "pushed blocks drained after a decode that may have them", in: "(*Handoff).taken",
		old:  "if h.state != handleSent || !h.once() {",
		new:  "if h.k != nil {",
		test: "TestNoDrainAfterADecodeThatBrokeOff/nixl-push",
	}, {
		name: "pushed blocks drained twice", in: "(*release).try",
		old:  "if how == Drained && j.once && begun(err, x.Head.Status, answer) {",
		new:  "if how == Released && j.once && begun(err, x.Head.Status, answer) {",
		test: "TestOneDrainOfPushedBlocks/nixl-push",
	}, {
		name: "a decode that died counts as one that has used its handle", in: "(*Handoff).newRelease",
		old:  "used: a.Avoid == nil && !h.failed,",
		new:  "used: a.Avoid == nil,",
		test: "TestADecodeThatDiesHasNotUsedItsHandle/nixl-push",
	}, {
		name: "a refused handle counts as used", in: "begun",
		old:  "return status < 400 || status >= 500",
		new:  "return status != fasthttp.StatusTeapot",
		test: "TestARefusedHandleIsDrained/nixl-push",
	}, {
		name: "a 503 of a load balancer counts as the engine's", in: "engineSpeaks",
		old:  `return said["error"] == "The model is currently scaling. Please try again later."`,
		new:  `return said["error"] != ""`,
		test: "TestNoDrainAfterA503OfAnother/nixl-push",
	}, {
		name: "any object of an error counts as the engine's", in: "engineSpeaks",
		old:  `return ok && e["type"] == "Service Unavailable"`,
		new:  "return ok",
		test: "TestNoDrainAfterA503OfAnother/nixl-push",
	}, {
		name: "a prefill cut that decode waits for", in: "GraceOf",
		old:  "g.Prefill, g.Finishes = prefill, true",
		new:  "g.Prefill = prefill",
		test: "TestConnectorsOfAClientThatLeaves/mooncake/prefill_start",
	}, {
		name: "a decode cut that asks prefill a second time", in: "GraceOf",
		old:  "if g.Finishes || kvparams.Dies(d)",
		new:  "if kvparams.Dies(d)",
		test: "TestConnectorsLoadForAClientThatLeaves/mooncake/prefill_start_completions",
	}, {
		name: "a decode held no longer than its own grace, however late P is", in: "(*completion).decodeGrace",
		old:  "if c.p.beside.due.Load() && grace.Finishes {",
		new:  "if false {",
		test: "TestDecodeOfAClientThatLeftWaitsForALatePrefill",
	}, {
		name: "a decode held for as long as P might have taken", in: "pair.prefill",
		old:  "if s.due.Store(false); c.gone() {",
		new:  "if s.due.Store(false); false {",
		test: "TestDecodeOfAClientThatLeftEndsAfterItsPrefill",
	}, {
		name: "a deadline that gives the blocks back while decode reads them", in: "classifyDecode",
		old:  "f.Cause == Stopped, f.Cause == Overdue:\n\t\tv.Handle = cutFate(f)",
		new:  "f.Cause == Stopped:\n\t\tv.Handle = cutFate(f)\n\tcase f.Cause == Overdue:\n\t\tv.Handle = FateSuspect",
		test: "TestDeadlineLeavesTheBlocksToDecode",
	}, {
		name: "a deadline that cuts an engine which dies of it", in: "(*decodeLeg).broke",
		old:  "d.X.Linger(ue, c.decodeGrace(), c.s.guard, func() {})",
		new:  "_ = ue",
		test: "TestDeadlineCutsNoEngineThatMustNotBeCut",
	}, {
		name: "a handle that ages from the end of its answer", in: "(*Handoff).age",
		old:  "time.Since(h.since)",
		new:  "time.Since(h.issued)",
		test: "TestLeaseBeginsWithTheFirstByteOfAnAnswer",
	}, {
		name: "a decode cut that kills the engine", in: "GraceOf",
		old:  "if g.Finishes || kvparams.Dies(d) || d.Reclaim()",
		new:  "if g.Finishes || d.Reclaim()",
		test: "TestConnectorsWhoseEnginesDieOfACut/lmcache/chat",
	}, {
		name: "the answer to a prefill whose client left cuts decode", in: "pair.prefill",
		old:  "!(s.holds && c.gone()) && s.first",
		new:  "s.first",
		test: "TestConnectorsLoadForAClientThatLeaves/mooncake/prefill_start_completions",
	}, {
		name: "a prefill beside decode not given back", in: "pair.giveUp",
		old:  "case !c.p.beside.holds:",
		new:  "case c.p.beside.holds:",
		test: "TestConnectorsGiveBackWhatNoDecodeReads/mooncake",
	}, {
		name: "a request without a handle reaches an engine that decodes without KV", in: "moriio.DecodeOnlySafe",
		old:  "return false",
		new:  "return true",
		test: "TestConnectorsServeWhatCannotBeSplit/moriio",
	}, {
		name: "a directed prefill's handle sent to another engine", in: "(*Handoff).FreshFor",
		old:  "h.to == d",
		new:  "h.to != nil",
		test: "TestAHandleForAnotherEngineIsNotSent",
	}, {
		name: "decode's own handle reaches a stream's client", in: "(*relay).take",
		old:  "if ev.Transfers() {",
		new:  "if ev.Malformed {",
		test: "TestDecodesOwnHandleReachesNoClient",
	}, {
		name: "decode's own encodings reach the client", in: "transferOf",
		old:  "return transferEC",
		new:  "return -1",
		test: "TestDecodesOwnEncodingsReachNoClient",
	}, {
		name: "decode's own handle reaches the client of a large answer", in: "(*decodeLeg).relayLarge",
		old:  "n := hider.Hide(buf)",
		new:  "n := len(buf)",
		test: "TestDecodesOwnHandleIsHiddenInAnswersBeyondTheLimit",
	}, {
		name: "drains under a salt that anybody can send", in: "drainLead",
		old:  "rand.Read(salt[:])",
		new:  "_ = rand.Reader",
		test: "TestDrainCannotBeFoundByASalt",
	}, {
		name: "a handle's blocks not counted", in: "(*prefillLeg).answered",
		old:  "c.s.engines.Covers(ans, b, c.d.Lease.Backend)",
		new:  "true, error(nil)",
		test: "TestHandleOfTooFewBlocksKillsNoDecode/few-blocks",
	}, {
		name: "short handles of a P without metrics", in: "(*Set).Covers",
		old:  "p.BlockTokens(), d.BlockTokens()",
		new:  "p.BlockTokens()",
		test: "TestShortHandleOfAPrefillWithoutMetrics/only_decode's_tell",
	}, {
		name: "a prefill whose handle killed a decode is asked again", in: "(*prefillLeg).suspectLast",
		old:  "p.tried, c.round.suspect = tried, true",
		new:  "_ = tried",
		test: "TestPrefillWhoseHandleCostADecodeIsNotAskedAgain/no_other",
	}, {
		name: "engines that were dead before make a request deadly", in: "(*completion).diedOf",
		old:  "if wrote.Before(since) {",
		new:  "if !since.IsZero() {",
		test: "TestDeadEnginesMakeNoOtherRequestDeadly",
	}, {
		name: "a decode that hangs takes every place of a release", in: "(*release).takePlace",
		old:  "limit := int32(maxReleasesEach)",
		new:  "limit := int32(maxReleases)",
		test: "TestReleasesOfACrowdPassAFrozenDecode/drained",
	}, {
		name: "any 4xx to a release counts", in: "engineRefused",
		old:  `return e.Error.Type == "NotFoundError"`,
		new:  "return true",
		test: "TestAnswersToAReleaseThatFreeNothing/no_such_route",
	}, {
		name: "a repeated prefill is not counted", in: "(*Exchange).repeat",
		old:  "x.Repeated = x.Sent() && first.Stage == StageHead",
		new:  "x.Repeated = false",
		test: "TestRepeatedPrefillIsCounted",
	}, {
		name: "release sent to the dead D", in: "(*Server).newRelease",
		old:  "job.avoid = append(job.avoid, a.avoid)",
		new:  "job.prefer = a.avoid",
		test: "TestReleaseAvoidsTheDecodeThatFailed",
	}, {
		name: "a release waits for a D that stands still", in: "(*release).try",
		old:  "time.Now().Add(releaseTry)",
		new:  "deadline",
		test: "TestReleaseDoesNotWaitForAFrozenDecode",
	}, {
		name: "a drain leaves what it read in a cache", in: "(*Request).appendDrain",
		old:  "drainLead(), kv",
		new:  "kvLead, kv",
		test: "TestDrainLeavesNothingToFind/badjson",
	}, {
		name: "lease released twice", in: "(*Lease).Release",
		old:  "if !l.held.CompareAndSwap(true, false) {",
		new:  "if l.held.Store(false); l.Backend == nil {",
		test: "TestReleaseCountsOnce",
	}, {
		name: "lease not released on panic", in: "(*Server).complete",
		old:  "c.finish(nil)\n\t\t\tpanic(p)",
		new:  "panic(p)",
		test: "TestPanicGivesEverythingBack/prefill",
	}, {
		name: "D not reserved first", in: "(*completion).tryRound",
		old:  "if f := c.p.prefill(); f != nil {",
		new:  "c.d.Lease.Release(router.NoVerdict)\n\t\tf := c.p.prefill()\n\t\tif f == nil {\n\t\t\tif err := c.d.reserve(nil); err != nil {\n\t\t\t\tf = leg.Ends(err)\n\t\t\t}\n\t\t}\n\t\tif f != nil {",
		test: "TestDecodeIsReservedWhilePrefillWorks",
	}, {
		name: "all-down prefills anyway", in: "(*completion).tryRound",
		old:  "return leg.Ends(err)",
		new:  "if c.p.prefill() == nil {\n\t\t\tc.abandon(nil)\n\t\t}\n\t\treturn leg.Ends(err)",
		test: "TestAllDownIsSaidAtOnce",
	}, {
		name: "client gone not watched during P", in: "(*completion).ClientGone",
		old:  "func (c *completion) ClientGone() {",
		new:  "func (c *completion) ClientGone() {\n\tif c.state.get() == statePrefilling {\n\t\treturn\n\t}",
		test: "TestClientLeavesInEachPhase/prefill_start/close",
	}, {
		name: "P aborted at once when the client leaves", in: "(*completion).ClientGone",
		old:  "c.s.router.AbortAt(&c.p.Lease, now, c.grace().Prefill)",
		new:  "now",
		test: "TestShortPrefillMayFinishForAClientThatLeft",
	}, {
		name: "P aborted at the grace, even if it is about to end", in: "(*completion).ClientGone",
		old:  "c.s.router.AbortAt(&c.p.Lease, now, c.grace().Prefill)",
		new:  "now.Add(c.grace().Prefill)",
		test: "TestPrefillThatShouldEndSoonMayFinish",
	}, {
		name: "D left open after the client has gone", in: "(*completion).ClientGone",
		old:  "c.d.X.Cut(leg.CutGone, now.Add(c.decodeGrace()))",
		new:  "",
		test: "TestClientLeavesInEachPhase/decode_received/close",
	}, {
		name: "TERM cuts streams", in: "(*Server).shutdown",
		old:  "s.Drain()\n\tctx, cancel",
		new:  "s.watch.StopAll()\n\ts.Drain()\n\tctx, cancel",
		test: "TestShutdownLetsStreamsFinish",
	}, {
		name: "kept clients stay with the process that ends", in: "(*Server).handle",
		old:  "if s.retiring.Load() || s.draining.Load() {",
		new:  "if s.draining.Load() {",
		test: "TestHandoverUnderLoad",
	}, {
		name: "resting connections cut by a hand-over", in: "(*Proxy).retire",
		old:  "return p.server.Retire(ctx)",
		new:  "return nil",
		test: "TestHandoverUnderLoad",
	}, {
		name: "a successor ends with its predecessor", in: "(*Inheritance).announce",
		old:  "alone := errors.Is(err, unix.EPIPE)",
		new:  "alone := false",
		test: "TestSuccessorOutlivesAKilledPredecessor",
	}, {
		name: "a pair of two connectors", in: "(*pool).fitting",
		old:  "if w.Like != nil && p.byConnector != nil {",
		new:  "if w.Like == nil {",
		test: "TestTwoConnectorsOfOneModel/mooncake",
	}, {
		name: "blocks given back by an engine of another connector", in: "(*release).pick",
		old:  ", Like: j.from}",
		new:  "}",
		test: "TestMixedPoolsGiveBack/moriio",
	}, {
		name: "a request without a prefill for an engine that serves none", in: "(*Snapshot).choose",
		old:  "} else if unbound(b) {",
		new:  "} else {",
		test: "TestDecodeIsChosenWhereAPrefillCanBeHad/all_Ps_are_down",
	}, {
		name: "a request without a prefill for an engine of a release that serves none", in: "(*query).pairsUp",
		old:  "(!q.alone || unbound(b))",
		new:  "true",
		test: "TestAPoolOfWhichSomeServeAlone",
	}, {
		name: "the engine id of another rank", in: "mooncake.ReadPeer",
		old:  "own := strconv.Itoa(max(rank, 0))",
		new:  "own := strconv.Itoa(max(rank, 0) * 0)",
		test: "TestMooncakeReadsItsBootstrapServer/second_rank",
	}, {
		name: "the control socket of another rank", in: "offloadingP2P.ReadPeer",
		old:  "peer.Port = strconv.Itoa(first + rank)",
		new:  "peer.Port = strconv.Itoa(first)",
		test: "TestP2PNamesTheSocketOfARank",
	}, {
		name: "SGLang's decode leg names no rank", in: "sglang.AppendDecode",
		old:  "if leg.Peer.Rank == \"\" {",
		new:  "if leg.Peer.Rank != \"-\" {",
		test: "TestSGLangNamesTheRank",
	}, {
		name: "MoRIIO's decode engine leads no request", in: "moriioWrite.AppendDecode",
		old:  "h.Raw[:len(h.Raw)-1], leads)",
		new:  "h.Raw)",
		test: "TestLegsOfEachConnector/moriio-write",
	}, {
		name: "a prefill leg that knows one rank of the decode engine", in: "ranksBeside",
		old:  "return max(ranks, d.Rank+1)",
		new:  "return min(ranks, 1)",
		test: "TestPairedRanksMoveKV/moriio-write",
	}, {
		name: "a drain without the transfer id of its prefill", in: "nixlPush.AppendDrain",
		old:  "h.Raw[:len(h.Raw)-1], transferID(&leg))",
		new:  "h.Raw[:len(h.Raw)-len(leg.Scratch[:0])])",
		test: "TestPushPairsResponsesByTheBody",
	}, {
		name: "an engine's release does not say that it serves requests without a handle", in: "ServesAlone",
		old:  "Since(version, m.AloneSince())",
		new:  "m.AloneSince() == 0",
		test: "TestMoriioServesAloneByItsRelease",
	}, {
		name: "an engine keeps its connector over a reload", in: "(*Router).newPool",
		old:  "k != nil && k.Connector == b.Connector {",
		new:  "k != nil {",
		test: "TestReloadChangesAConnector",
	}, {
		name: "a wait for one connector holds up those for another", in: "needOf",
		old:  "n.connector = w.Like.Connector",
		new:  "n.connector = \"\"",
		test: "TestQueueOfTwoConnectors",
	}, {
		name: "a pair of two connectors warmed up", in: "(*Snapshot).pairable",
		old:  "!strict && p.connector == d.connector",
		new:  "!strict",
		test: "TestPartnersHaveTheConnector",
	}, {
		name: "engines of two releases are paired", in: "(*Snapshot).strict",
		old:  "return s.severalReleases() && s.matched(w)",
		new:  "return false",
		test: "TestBackendsOfOneReleaseMakePairs/half_is_newer",
	}, {
		name: "no round with another connector", in: "(*completion).elsewhere",
		old:  "return f.Then(fault.RetryPaid)",
		new:  "return f.Final()",
		test: "TestMixedPoolsOutliveAnEngine/decode_1/mooncake",
	}, {
		name: "no warm-up", in: "(*warmer).cold",
		old:  "if w.warms(b) {",
		new:  "if w.warms(b) && false {",
		test: "TestEachPairIsWarmedUpOnce",
	}, {
		name: "cold pair gets requests", in: "(*query).allows",
		old:  "(!q.pairs.cold || !q.pairs.isCold(b, q.now))",
		new:  "true",
		test: "TestColdPairsArePassedOver",
	}, {
		name: "failed warm-up keeps its blocks", in: "(*warmUp).decode",
		old:  "h.Release(handoff.Abandoned{",
		new:  "func(handoff.Abandoned) {}(handoff.Abandoned{",
		test: "TestFailedWarmUpLeavesNothingBehind",
	}, {
		name: "a warm-up that breaks off blames the pair", in: "(*warmUp).decode",
		old:  "!upstream.IsDial(err) && news(err) {",
		new:  "!upstream.IsDial(err) && (news(err) || true) {",
		test: "TestWarmUpThatBreaksOffBlamesNobody",
	}, {
		name: "a request is the probe of a banned pair", in: "(*Pairs).WarmUps",
		old:  "until <= now+int64(probeAhead)",
		new:  "until <= now-int64(probeAhead)",
		test: "TestBannedPairIsDueBeforeItsBanEnds",
	}, {
		name: "a release goes to an engine of another model", in: "(*release).pick",
		old:  "Model: j.model, Peer: j.from, ",
		new:  "",
		test: "TestReleaseGoesToAnEngineOfTheModel",
	}, {
		name: "a release without a model goes to any engine", in: "(*release).pick",
		old:  ", Peer: j.from",
		new:  "",
		test: "TestReleaseGoesToTheModelOfThePrefill",
	}}
}
