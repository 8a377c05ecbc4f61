package main

// limits breaks the rules about what one client may take of the proxy, and what it may send.
func limits() []mutant {
	return []mutant{{
		name: "body budget not given back", in: "(*Body).Free",
		old:  "b.charge.Lower(0)",
		new:  "",
		test: "TestByteBudget",
	}, {
		name: "an upload that stops is waited for", in: "(*pace).next",
		old:  "if silent := now.Add(p.stall); silent.Before(at) {",
		new:  "if silent := now.Add(p.stall); silent.IsZero() {",
		test: "TestUploadThatStopsIsAnswered408",
	}, {
		name: "a body that came fast has time saved up", in: "(*pace).next",
		old:  "p.until.IsZero() || at.After(most) {",
		new:  "p.until.IsZero() {",
		test: "TestBodyPace",
	}, {
		name: "one client may fill the body budget", in: "(*Budget).Take",
		old:  "case b.held[of]+n > b.share:",
		new:  "case false:",
		test: "TestOneClientLeavesRoomForOthers",
	}, {
		name: "addresses are one client", in: "(*Server).clientOf",
		old:  "return budget.Client{IP: conn.Network()}",
		new:  "return budget.Client{}",
		test: "TestOneAddressLeavesRoomForOthers",
	}, {
		name: "large bodies fill the reserve of small ones", in: "(*Budget).Take",
		old:  "room = min(room, b.large)",
		new:  "",
		test: "TestSmallBodiesHaveAReserve",
	}, {
		name: "answers held uncharged", in: "(*Server).readHeld",
		old:  "if held.Raise(s.held, of, size) != budget.Granted {",
		new:  "if false {",
		test: "TestAnswersThatNobodyReadsAreBounded",
	}, {
		name: "a slow reader of a whole answer keeps its place on decode", in: "(*decodeLeg).commitWhole",
		old:  "c.commit()\n\td.endAnswer(router.OK, fault.CodeNone)",
		new:  "c.commit()",
		test: "TestSlowReaderOfAWholeAnswerHoldsNoDecodeSlot",
	}, {
		name: "tokens are written as one", in: "(*passing).pass",
		old:  "if len(buf) <= freeAnswer {",
		new:  "if true {",
		test: "TestSlowReaderOfTokensIsServed",
	}, {
		name: "the end of the process waits for a reader that stands still", in: "(*completion).ServerStopping",
		old:  "_ = c.conn.SetWriteDeadline(now.Add(stopGrace))",
		new:  "",
		test: "TestDrainCutsReadersThatStandStill",
	}, {
		name: "the end of the process does not reach an upload", in: "(*completion).ServerStopping",
		old:  "_ = c.conn.SetReadDeadline(now)",
		new:  "",
		test: "TestDrainEndsUploads//v1/completions",
	}, {
		name: "place under limits.client_in_flight not given back", in: "(*completion).finish",
		old:  "s.clients.End(c.client)",
		new:  "",
		test: "TestClientLimit/of_an_address",
	}, {
		name: "oversize inflated body read to its end", in: "(*Terms).fill",
		old:  "if body.Size() > t.Largest {",
		new:  "if err != nil && body.Size() > t.Largest {",
		test: "TestBomb",
	}, {
		name: "the decoder of a compressed body is not charged", in: "(*Terms).inflate",
		old:  "if r := held.Raise(t.Bodies.Budget, w.src.Client, zstdCost(window)); r != budget.Granted {\n\t\treturn refused(r)\n\t}",
		new:  "",
		test: "TestDecoderIsCharged",
	}, {
		name: "a compressed body that is cut is taken for a whole one", in: "(*wire).end",
		old:  "case errors.Is(err, io.EOF) && w.err != nil:",
		new:  "case w.err != nil:",
		test: "TestCompressedRequestsThatAreRefused",
	}, {
		name: "any client may name another address", in: "(*Listener).Accept",
		old:  "c.balanced = within(l.terms.Balancers, c.ip)",
		new:  "c.balanced = len(l.terms.Balancers) > 0",
		test: "TestHeaderOfAClientIsRefused",
	}, {
		name: "a page that is not named reads answers", in: "(*Policy).allows",
		old:  "case p.all:",
		new:  "case p.all || p != nil:",
		test: "TestPagesOfOtherOrigins",
	}, {
		name: "both legs have the request's place in its trace", in: "Request.Leg",
		old:  "hex.Encode(l.fields[r.on.at:], id[:])",
		new:  "_ = id",
		test: "TestTraceOfACompletion",
	}, {
		name: "announced oversize body read to its end", in: "(*Server).admitHead",
		old:  "if int64(h.ContentLength()) > s.bound().Limits.Body {",
		new:  "if false {",
		test: "TestOversizeBodyIsRefusedBeforeItsEnd/announced",
	}, {
		name: "client key forwarded although xpyd has keys of its own", in: "(*Forward).Append",
		old:  "case f.KeepAuth:",
		new:  "default:",
		test: "TestNothingElseOfTheClientsHeadReachesAnEngine/1_keys",
	}, {
		name: "a route that xpyd does not know is sent twice", in: "classifyPassed",
		old:  "if f.repeats {",
		new:  "if true {",
		test: "TestRelayedRetries",
	}, {
		name: "a client that left keeps an engine at work", in: "(*passing).ClientGone",
		old:  "p.cut(leg.CutGone)",
		new:  "_ = p.cut",
		test: "TestRelayedClientLeaves",
	}, {
		name: "duplicate control field accepted", in: "(*Request).member",
		old:  "if r.seen.has(f) {",
		new:  "if false {",
		test: "TestClientParametersAreRefused/doubled",
	}, {
		name: "forbidden field accepted on the decode-only path", in: "(*Request).hide",
		old:  "!void || r.hidden > maxHidden {",
		new:  `(!void || r.hidden > maxHidden) && r.Bypass() == ReasonNone {`,
		test: "TestClientParametersAreRefused/handle_on_the_decode-only_path",
	}, {
		name: "one model's queue holds up the others", in: "(*waiter).choosy",
		old:  "|| s.Mixed(wt.want.Role)",
		new:  "",
		test: "TestQueueIsNotHeldUpByAnotherModel",
	}, {
		name: "a full queue refuses whoever comes", in: "(*queue).join",
		old:  "out := q.line.crowd.newest()",
		new:  "out := wt",
		test: "TestFullQueueIsSharedByAddress",
	}, {
		name: "a panic in the queue reaches whoever releases a slot", in: "(*waiter).acquire",
		old:  "p := recover(); p != nil",
		new:  "p := any(nil); p != nil",
		test: "TestPanicEndsItsOwnWaitOnly",
	}, {
		name: "the end of an ejection wakes nobody", in: "(*Router).eject",
		old:  "r.wakeAt(now + int64(e.For))",
		new:  "",
		test: "TestWaiterIsServedWhenABackendReturns",
	}}
}
