package main

// handles breaks the rules about handles: each is used once, in time, or given back. It also has
// leases, and the clients, processes and panics that end a completion.
func handles() []mutant {
	return []mutant{{
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
		name: "handle used twice after a reset", in: "(*completion).decodeAttempt",
		old:  "again := handle.None() && (",
		new:  "again := (",
		test: "TestHandleGoesToOneDecodeRequest/rst",
	}, {
		name: "leg kept on a fresh connection although it must not", in: "(*Exchange).Do",
		old:  "if again && errors.As(",
		new:  "if errors.As(",
		test: "TestNoSecondTryForAHandle",
	}, {
		name: "handle used after lease − margin", in: "(*Handoff).Fresh",
		old:  "-h.k.cfg.KV.LeaseMargin",
		new:  "",
		test: "TestHandleOlderThanItsLeaseIsNotSent",
	}, {
		name: "handle not looked at after a wait for a slot", in: "(*completion).decode",
		old:  "&& !c.handoff.fresh()",
		new:  "&& false",
		test: "TestHandleThatAgedInTheQueueIsNotSent",
	}, {
		name: "second round on a kept connection", in: "(*completion).request",
		old:  "Fresh: c.round > 1",
		new:  "Fresh: false",
		test: "TestSecondRoundTakesAFreshConnection",
	}, {
		name: "same handle after 5xx", in: "(*completion).decodeRefused",
		old:  "failed := c.fail(b, f, told)",
		new:  "if status == 500 {\n\t\tc.handoff.Unsent()\n\t\treturn &failure{Verdict: fault.Verdict{Code: fault.CodeDecodeFailed, Outcome: router.Refused, Retry: fault.RetryFree}, told: told}\n\t}\n\tfailed := c.fail(b, f, told)",
		test: "TestHandleGoesToOneDecodeRequest/status=500",
	}, {
		name: "P's late answer dropped", in: "(*completion).prefillExchange",
		old:  "err = c.lateAnswer(err)",
		new:  "c.p.x.HalfClose()",
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
		name: "a prefill cut that decode waits for", in: "graceFor",
		old:  "g.prefill, g.finishes = t.Prefill, true",
		new:  "g.prefill = t.Prefill",
		test: "TestConnectorsOfAClientThatLeaves/mooncake/prefill_start",
	}, {
		name: "a prefill beside decode not given back", in: "(*completion).giveUp",
		old:  "case !c.p.beside.holds:",
		new:  "case c.p.beside.holds:",
		test: "TestConnectorsGiveBackWhatNoDecodeReads/mooncake",
	}, {
		name: "a request without a handle reaches an engine that decodes without KV", in: "moriio.DecodeOnlySafe",
		old:  "return false",
		new:  "return true",
		test: "TestConnectorsServeWhatCannotBeSplit/moriio",
	}, {
		name: "decode's own handle reaches a stream's client", in: "(*relay).take",
		old:  "if ev.Handle() {",
		new:  "if ev.Malformed {",
		test: "TestDecodesOwnHandleReachesNoClient",
	}, {
		name: "decode's own handle reaches the client of a large answer", in: "(*completion).relayLarge",
		old:  "n := hider.Hide(buf)",
		new:  "n := len(buf)",
		test: "TestDecodesOwnHandleIsHiddenInAnswersBeyondTheLimit",
	}, {
		name: "drains under a salt that anybody can send", in: "drainLead",
		old:  "rand.Read(salt[:])",
		new:  "_ = rand.Reader",
		test: "TestDrainCannotBeFoundByASalt",
	}, {
		name: "a handle's blocks not counted", in: "(*completion).prefillAnswered",
		old:  "ans.Covers(b.BlockTokens())",
		new:  "ans.Covers(0)",
		test: "TestHandleOfTooFewBlocksKillsNoDecode/few-blocks",
	}, {
		name: "a prefill whose handle killed a decode is asked again", in: "(*completion).suspectPrefill",
		old:  "c.p.tried, c.p.suspect = tried, true",
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
		old:  "if f := c.prefill(); f != nil {",
		new:  "c.d.lease.Release(router.ClientGone)\n\t\tf := c.prefill()\n\t\tif f == nil {\n\t\t\tif err := c.reserveDecode(); err != nil {\n\t\t\t\tf = ends(err)\n\t\t\t}\n\t\t}\n\t\tif f != nil {",
		test: "TestDecodeIsReservedWhilePrefillWorks",
	}, {
		name: "all-down prefills anyway", in: "(*completion).tryRound",
		old:  "return ends(err)",
		new:  "if c.prefill() == nil {\n\t\t\tc.abandon(nil)\n\t\t}\n\t\treturn ends(err)",
		test: "TestAllDownIsSaidAtOnce",
	}, {
		name: "client gone not watched during P", in: "(*completion).ClientGone",
		old:  "func (c *completion) ClientGone() {",
		new:  "func (c *completion) ClientGone() {\n\tif c.state.get() == statePrefilling {\n\t\treturn\n\t}",
		test: "TestClientLeavesInEachPhase/prefill_start/close",
	}, {
		name: "P aborted at once when the client leaves", in: "(*completion).ClientGone",
		old:  "now.Add(grace.prefill)",
		new:  "now",
		test: "TestShortPrefillMayFinishForAClientThatLeft",
	}, {
		name: "D left open after the client has gone", in: "(*completion).ClientGone",
		old:  "c.d.x.Cut(cutGone, now.Add(grace.decode))",
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
		name: "no warm-up", in: "(*warmer).cold",
		old:  "if w.enabled() {",
		new:  "if w.enabled() && false {",
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
		old:  "} else if news(err) {",
		new:  "} else if news(err) || true {",
		test: "TestWarmUpThatBreaksOffBlamesNobody",
	}, {
		name: "a request is the probe of a banned pair", in: "(*Pairs).WarmUps",
		old:  "until <= now+int64(probeAhead)",
		new:  "until <= now-int64(probeAhead)",
		test: "TestBannedPairIsDueBeforeItsBanEnds",
	}, {
		name: "a release goes to an engine of another model", in: "(*release).pick",
		old:  "Model: j.model, Peer: j.from",
		new:  "",
		test: "TestReleaseGoesToAnEngineOfTheModel",
	}, {
		name: "a release without a model goes to any engine", in: "(*release).pick",
		old:  ", Peer: j.from",
		new:  "",
		test: "TestReleaseGoesToTheModelOfThePrefill",
	}}
}
