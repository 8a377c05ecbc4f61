package main

const (
	proxyPkg    = "./proxy"
	kvparamsPkg = "./kvparams"
	routerPkg   = "./router"
	rootPkg     = "."
)

// controls change nothing that anybody can see: a suite that fails under them kills
// whatever it is given.
func controls() []mutant {
	return []mutant{{
		name: "control: the same minimum in another order", file: "proxy/errors.go", pkg: proxyPkg,
		old: "return min(n, 120)",
		new: "return min(120, n)",
	}, {
		name: "control: the same bits in another order", file: "kvparams/event.go", pkg: kvparamsPkg,
		old: "c.count(reason, role && !more && !token)",
		new: "c.count(reason, role && !token && !more)",
	}, {
		name: "control: the same ends in another order", file: "router/lease.go", pkg: routerPkg,
		old: "b.record(o)\n\tl.leaveLocal()",
		new: "l.leaveLocal()\n\tb.record(o)",
	}}
}

func mutants() []mutant { return append(guardMutants(), balanceMutants()...) }

// guardMutants: handles, streams, and what both stand on.
func guardMutants() []mutant {
	all := streamMutants()
	all = append(all, handleMutants()...)
	all = append(all, fencedHandleMutants()...)
	all = append(all, releaseMutants()...)
	all = append(all, leavingMutants()...)
	all = append(all, healthMutants()...)
	all = append(all, retryMutants()...)
	all = append(all, pairMutants()...)
	all = append(all, moveMutants()...)
	all = append(all, handoverMutants()...)
	all = append(all, edgeMutants()...)
	all = append(all, framingMutants()...)
	all = append(all, routingMutants()...)
	all = append(all, clientMutants()...)
	return append(all, socketMutants()...)
}

// balanceMutants: where load goes by what is known of engines and prompts, and what
// operators are told.
func balanceMutants() []mutant {
	all := operatorMutants()
	all = append(all, priceMutants()...)
	all = append(all, engineMutants()...)
	all = append(all, elsewhereMutants()...)
	return append(all, prefixMutants()...)
}

// streamMutants: what counts as success, and what a client is shown of a stream.
func streamMutants() []mutant {
	return []mutant{{
		name: "EOF counts as done", file: "proxy/relay.go",
		old: "return io.ErrUnexpectedEOF",
		new: "r.done = true\n\t\treturn nil",
		pkg: proxyPkg, test: "TestStreamsThatOnlyLookWhole/no-done/chat=true",
	}, {
		name: "[DONE] without finish_reason counts", file: "proxy/relay.go",
		old: "if r.finished < r.choices {",
		new: "if r.finished < 0 {",
		pkg: proxyPkg, test: "TestStreamsThatOnlyLookWhole/no-finish/chat=true",
	}, {
		name: "[DONE] relayed although a choice is unfinished", file: "proxy/relay.go",
		old: "r.broken = r.committed // a client must not see a clean end\n\t\t\treturn",
		new: "r.broken = r.committed // a client must not see a clean end",
		pkg: proxyPkg, test: "TestStreamsThatOnlyLookWhole/no-finish/chat=false",
	}, {
		name: "[DONE] as the first event counts", file: "proxy/decode.go",
		old: "case r.committed:\n",
		new: "case r.committed || r.done:\n",
		pkg: proxyPkg, test: "TestFailuresBeforeTheFirstTokenAreMended/nothing_but_[DONE]/chat_streamed",
	}, {
		name: "error event followed by [DONE] counts", file: "proxy/relay.go",
		old: "r.broken, r.reported = true, true\n\t\tif r.foreign = r.expose; !r.foreign {",
		new: "r.foreign, r.reported = true, true\n\t\tif false {",
		pkg: proxyPkg, test: "TestErrorEventBehindTheLastTokenIsNoSuccess/chat_streamed",
	}, {
		name: "role chunk commits", file: "kvparams/event.go",
		old: "return e.Kind == EventContent }",
		new: "return e.Kind == EventContent || e.Kind == EventRole }",
		pkg: proxyPkg, test: "TestFailuresBeforeTheFirstTokenAreMended/KV_load_failed/chat_streamed",
	}, {
		name: "usage chunk commits", file: "kvparams/event.go",
		old: "return e.Kind == EventContent }",
		new: "return e.Kind == EventContent || e.Kind == EventUsage }",
		pkg: proxyPkg, test: "TestUsageEventCommitsNothing",
	}, {
		name: "partial event relayed", file: "proxy/relay.go",
		old: "if r.ready > 0 {",
		new: "if r.ready = len(r.buf); r.ready > 0 {",
		pkg: proxyPkg, test: "TestDecodeDiesInsideAnEvent/chat=true/event_3",
	}, {
		name: "cached_tokens of a stream not rewritten", file: "proxy/relay.go",
		old: "n = r.rewriteUsage(n)",
		new: "n += 0",
		pkg: proxyPkg, test: "TestCachedTokensArePrefills/true",
	}, {
		name: "cached_tokens of an answer not rewritten", file: "proxy/decode.go",
		old: "d.whole.AppendClient(d.out[:0], c.cachedTokens())",
		new: "d.whole.AppendClient(d.out[:0], -1)",
		pkg: proxyPkg, test: "TestCachedTokensArePrefills/true",
	}, {
		name: "chunk end between chunks accepted as the body's end", file: "proxy/exchange.go",
		old: "if x.body.untilEOF {",
		new: "if x.body.untilEOF || x.body.chunked && x.body.state == chunkSize {",
		pkg: proxyPkg, test: "TestResponseFraming/ends_between_two_chunks",
	}}
}

// releaseMutants: what a release may cost, and leave behind.
func releaseMutants() []mutant {
	return []mutant{{
		name: "release sent to the dead D", file: "proxy/release.go",
		old: "job.avoid = append(job.avoid, a.avoid)",
		new: "job.prefer = a.avoid",
		pkg: proxyPkg, test: "TestReleaseAvoidsTheDecodeThatFailed",
	}, {
		name: "a release waits for a D that stands still", file: "proxy/release.go",
		old: "time.Now().Add(releaseTry)",
		new: "deadline",
		pkg: proxyPkg, test: "TestReleaseDoesNotWaitForAFrozenDecode",
	}, {
		name: "a drain leaves what it read in a cache", file: "kvparams/nixl.go",
		old: "drainLead(), h.Raw",
		new: "kvLead, h.Raw",
		pkg: proxyPkg, test: "TestDrainLeavesNothingToFind/badjson",
	}}
}

// handleMutants: a handle is used once, in time, and given back where it is not.
func handleMutants() []mutant {
	return []mutant{{
		name: "no release", file: "proxy/handoff.go",
		old: "c.s.releases.start(a)",
		new: "c.handoff.state = handleEnded",
		pkg: proxyPkg, test: "TestClientLeavesInEachPhase/prefill_ending/close",
	}, {
		name: "one-token drain not read to its end", file: "proxy/release.go",
		old: "answer, err = x.readAll(nil, j.s.cfg.Limits.Answer)",
		new: "err = nil",
		pkg: proxyPkg, test: "TestDrainCutShortIsTriedElsewhere",
	}, {
		name: "handle used twice after a reset", file: "proxy/decode.go",
		old: "deadline, handle.None())",
		new: "deadline, true)",
		pkg: proxyPkg, test: "TestHandleGoesToOneDecodeRequest/rst",
	}, {
		name: "leg kept on a fresh connection although it must not", file: "proxy/exchange.go",
		old: "if again && errors.As(",
		new: "if errors.As(",
		pkg: proxyPkg, test: "TestNoSecondTryForAHandle",
	}, {
		name: "handle used after lease − margin", file: "proxy/handoff.go",
		old: "return h.age() < h.s.cfg.KV.Lease-h.s.cfg.KV.LeaseMargin",
		new: "return h.age() < h.s.cfg.KV.Lease",
		pkg: proxyPkg, test: "TestHandleOlderThanItsLeaseIsNotSent",
	}, {
		name: "handle not looked at after a wait for a slot", file: "proxy/decode.go",
		old: "if c.handoff.state == handleIssued && !c.handoff.fresh() {",
		new: "if false {",
		pkg: proxyPkg, test: "TestHandleThatAgedInTheQueueIsNotSent",
	}, {
		name: "second round on a kept connection", file: "proxy/prefill.go",
		old: "fresh: c.round > 1",
		new: "fresh: false",
		pkg: proxyPkg, test: "TestSecondRoundTakesAFreshConnection",
	}, {
		name: "same handle after 5xx", file: "proxy/decode.go",
		old: "if r.outcome != router.Refused || c.interrupted() != nil {",
		new: "if r.err.Status == 500 {\n\t\t\tc.handoff.state, r.outcome = handleIssued, router.Refused\n\t\t}\n\t\tif r.outcome != router.Refused || c.interrupted() != nil {",
		pkg: proxyPkg, test: "TestHandleGoesToOneDecodeRequest/status=500",
	}, {
		name: "P's late answer dropped", file: "proxy/prefill.go",
		old: "err = c.lateAnswer(err)",
		new: "c.p.x.halfClose()",
		pkg: proxyPkg, test: "TestLateAnswerOfPrefillIsReleased",
	}, {
		name: "wrong handle member not checked", file: "kvparams/nixl.go",
		old: "return ok && port >= 1 && port <= 65535",
		new: "return ok || !ok",
		pkg: proxyPkg, test: "TestUnusableHandlesNeverReachDecode/port-high",
	}, {
		name: "missing handle member not checked", file: "kvparams/nixl.go",
		old: "if !n.seen[which] {",
		new: "if !n.seen[which] && n.first > 0 {",
		pkg: proxyPkg, test: "TestUnusableHandlesNeverReachDecode/no-blocks",
	}}
}

// leavingMutants: leases, and clients, processes and panics that end a completion.
func leavingMutants() []mutant {
	return []mutant{{
		name: "lease released twice", file: "router/lease.go",
		old: "if !l.held.CompareAndSwap(true, false) {",
		new: "if l.held.Store(false); l.Backend == nil {",
		pkg: routerPkg, test: "TestReleaseCountsOnce",
	}, {
		name: "lease not released on panic", file: "proxy/completion.go",
		old: "c.finish(nil)\n\t\t\tpanic(p)",
		new: "panic(p)",
		pkg: proxyPkg, test: "TestPanicGivesEverythingBack/prefill",
	}, {
		name: "D not reserved first", file: "proxy/completion.go",
		old: "if err := c.prefill(); err != nil {",
		new: "c.d.lease.Release(router.ClientGone)\n\t\terr := c.prefill()\n\t\tif err == nil {\n\t\t\terr = c.reserveDecode()\n\t\t}\n\t\tif err != nil {",
		pkg: proxyPkg, test: "TestDecodeIsReservedWhilePrefillWorks",
	}, {
		name: "all-down prefills anyway", file: "proxy/completion.go",
		old: "if err := c.reserveDecode(); err != nil {\n\t\treturn err\n\t}\n\tc.choosePath()",
		new: "if err := c.reserveDecode(); err != nil {\n\t\tif c.prefill() == nil {\n\t\t\tc.abandon(nil)\n\t\t}\n\t\treturn err\n\t}\n\tc.choosePath()",
		pkg: proxyPkg, test: "TestAllDownIsSaidAtOnce",
	}, {
		name: "client gone not watched during P", file: "proxy/completion.go",
		old: "func (c *completion) clientGone() {\n",
		new: "func (c *completion) clientGone() {\n\tif c.state.get() == statePrefilling {\n\t\treturn\n\t}\n",
		pkg: proxyPkg, test: "TestClientLeavesInEachPhase/prefill_start/close",
	}, {
		name: "P aborted at once when the client leaves", file: "proxy/completion.go",
		old: "c.leave()\n\tnow := time.Now()\n\tc.p.x.interrupt(now.Add(c.s.cfg.Timeouts.PrefillAbortGrace))",
		new: "c.leave()\n\tnow := time.Now()\n\tc.p.x.interrupt(now)",
		pkg: proxyPkg, test: "TestShortPrefillMayFinishForAClientThatLeft",
	}, {
		name: "D left open after the client has gone", file: "proxy/completion.go",
		old: "c.d.x.interrupt(now.Add(c.s.cfg.Timeouts.DecodeAbortGrace))",
		new: "",
		pkg: proxyPkg, test: "TestClientLeavesInEachPhase/decode_received/close",
	}, {
		name: "TERM cuts streams", file: "proxy/shutdown.go",
		old: "s.Drain()\n\tctx, cancel",
		new: "s.watch.stopAll()\n\ts.Drain()\n\tctx, cancel",
		pkg: proxyPkg, test: "TestShutdownLetsStreamsFinish",
	}}
}

// handoverMutants: a process that leaves its port to another.
func handoverMutants() []mutant {
	return []mutant{{
		name: "kept clients stay with the process that ends", file: "proxy/server.go",
		old: "if s.retiring.Load() || s.draining.Load() {",
		new: "if s.draining.Load() {",
		pkg: rootPkg, test: "TestHandoverUnderLoad",
	}, {
		name: "resting connections cut by a hand-over", file: "serve.go",
		old: "return p.server.Retire(ctx)",
		new: "return nil",
		pkg: rootPkg, test: "TestHandoverUnderLoad",
	}, {
		name: "a successor ends with its predecessor", file: "handover.go",
		old: "alone := errors.Is(err, unix.EPIPE)",
		new: "alone := false",
		pkg: rootPkg, test: "TestSuccessorOutlivesAKilledPredecessor",
	}}
}

// edgeMutants: what clients send and what is kept between requests.
func edgeMutants() []mutant {
	return []mutant{{
		name: "body budget not given back", file: "proxy/body.go",
		old: "bb.charge.lower(0)",
		new: "",
		pkg: proxyPkg, test: "TestByteBudget",
	}, {
		name: "an upload that stops is waited for", file: "proxy/body.go",
		old: "if silent := now.Add(p.stall); silent.Before(at) {",
		new: "if silent := now.Add(p.stall); silent.IsZero() {",
		pkg: proxyPkg, test: "TestUploadThatStopsIsAnswered408",
	}, {
		name: "a body that came fast has time saved up", file: "proxy/body.go",
		old: "p.until.IsZero() || at.After(most) {",
		new: "p.until.IsZero() {",
		pkg: proxyPkg, test: "TestBodyPace",
	}, {
		name: "one client may fill the body budget", file: "proxy/budget.go",
		old: "case b.held[of]+n > b.share:",
		new: "case false:",
		pkg: proxyPkg, test: "TestOneClientLeavesRoomForOthers",
	}, {
		name: "large bodies fill the reserve of small ones", file: "proxy/budget.go",
		old: "room = min(room, b.large)",
		new: "",
		pkg: proxyPkg, test: "TestSmallBodiesHaveAReserve",
	}, {
		name: "answers held uncharged", file: "proxy/held.go",
		old: "if held.raise(s.held, of, size) != granted {",
		new: "if false {",
		pkg: proxyPkg, test: "TestAnswersThatNobodyReadsAreBounded",
	}, {
		name: "a slow reader of a whole answer keeps its place on decode", file: "proxy/decode.go",
		old: "c.commit()\n\tc.endDecode(d.lease.Backend, router.OK, \"\")",
		new: "c.commit()",
		pkg: proxyPkg, test: "TestSlowReaderOfAWholeAnswerHoldsNoDecodeSlot",
	}, {
		name: "tokens are written as one", file: "proxy/passing.go",
		old: "if len(buf) <= freeAnswer {",
		new: "if true {",
		pkg: proxyPkg, test: "TestSlowReaderOfTokensIsServed",
	}, {
		name: "the end of the process waits for a reader that stands still", file: "proxy/completion.go",
		old: "_ = c.conn.SetWriteDeadline(now.Add(stopGrace))",
		new: "",
		pkg: proxyPkg, test: "TestDrainCutsReadersThatStandStill",
	}, {
		name: "the end of the process does not reach an upload", file: "proxy/completion.go",
		old: "_ = c.conn.SetReadDeadline(now)",
		new: "",
		pkg: proxyPkg, test: "TestDrainEndsUploads//v1/completions",
	}, {
		name: "place under limits.client_in_flight not given back", file: "proxy/finish.go",
		old: "s.clients.leave(c.client)",
		new: "",
		pkg: proxyPkg, test: "TestClientLimit/of_an_address",
	}, {
		name: "oversize body read to its end", file: "proxy/body.go",
		old: "if bb.size() > s.cfg.Limits.Body {",
		new: "if err != nil && bb.size() > s.cfg.Limits.Body {",
		pkg: proxyPkg, test: "TestOversizeBodyIsRefusedBeforeItsEnd/chunked",
	}, {
		name: "announced oversize body read to its end", file: "proxy/routes.go",
		old: "if int64(h.ContentLength()) > s.cfg.Limits.Body {",
		new: "if false {",
		pkg: proxyPkg, test: "TestOversizeBodyIsRefusedBeforeItsEnd/announced",
	}, {
		name: "client's X-Forwarded-* forwarded", file: "proxy/finish.go",
		old: `dst = appendField(dst, "User-Agent", h.UserAgent())`,
		new: `dst = appendField(appendField(dst, "User-Agent", h.UserAgent()), "X-Forwarded-For", h.Peek("X-Forwarded-For"))`,
		pkg: proxyPkg, test: "TestNothingElseOfTheClientsHeadReachesAnEngine/0_keys",
	}, {
		name: "client key forwarded although xpyd has keys of its own", file: "proxy/finish.go",
		old: "case !s.keys.required():",
		new: "default:",
		pkg: proxyPkg, test: "TestNothingElseOfTheClientsHeadReachesAnEngine/1_keys",
	}, {
		name: "duplicate control field accepted", file: "kvparams/request.go",
		old: "if r.seen&(1<<f) != 0 {",
		new: "if false {",
		pkg: proxyPkg, test: "TestClientParametersAreRefused/doubled",
	}, {
		name: "forbidden field accepted on the decode-only path", file: "kvparams/hidden.go",
		old: "!void || r.hidden > maxHidden {",
		new: "(!void || r.hidden > maxHidden) && r.Bypass() == \"\" {",
		pkg: proxyPkg, test: "TestClientParametersAreRefused/handle_on_the_decode-only_path",
	}, {
		name: "n=2 disaggregated", file: "kvparams/bypass.go",
		old: "case !r.absentOr(fieldN, \"1\"):",
		new: "case false:",
		pkg: proxyPkg, test: "TestWhatPrefillCannotServeGoesToDecodeAlone/n",
	}}
}
