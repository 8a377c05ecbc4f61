package main

// roleless breaks the rules about engines without a role.
func roleless() []mutant {
	return []mutant{{
		name: "a request has both legs on one engine", in: "(*query).barred",
		old:  "q.apart != nil && SharesEngine(q.apart, b)",
		new:  "false",
		test: "TestNoRequestHasBothLegsOnOneEngine",
	}, {
		name: "a handle goes back to its engine when the roles have changed", in: "relate",
		old:  "len(now) > 0 || swapsRoles(s, old)",
		new:  "len(now) > 3",
		test: "TestNoHandleGoesBackToItsEngine",
	}, {
		name: "a check takes an engine down in one role", in: "(*Backend).Observe",
		old:  "both := [2]*Backend{b, b.Twin()}",
		new:  "both := [2]*Backend{b, nil}",
		test: "TestTwinsShareWhatConcernsTheProcess",
	}, {
		name: "a refused connection is of one role", in: "(*Backend).record",
		old:  "eachRole(b, func(x *Backend) { x.fail(1, EjectFailures) })",
		new:  "b.fail(1, EjectFailures)",
		test: "TestTwinsShareWhatConcernsTheProcess",
	}, {
		name: "what an engine does in its other role does not count", in: "besides",
		old:  "return t.own(tokens)",
		new:  "return 0",
		test: "TestTheLoadOfAnEngineIsThatOfBothRoles",
	}, {
		name: "prefills and decodes wait for each other's slots", in: "occupiedBesides",
		old:  "if b.Role == Decode {",
		new:  "if true {",
		test: "TestCapsOfAnEngineWithoutARole",
	}, {
		name: "a whole request without roles is a degradation", in: "(*Snapshot).Degrade",
		old:  "l.degraded || l.Backend.Twin() != nil",
		new:  "l.degraded",
		test: "TestNothingIsDegradedWithoutRoles",
	}, {
		name: "requests go whole to the only engine that could prefill", in: "besideTheOnlyPrefill",
		old:  "if only == nil || only.Twin() == nil {",
		new:  "if true {",
		test: "TestTheOnlyEngineThatPrefills",
	}, {
		name: "a lone engine waits for a prefill", in: "(*completion).choosePath",
		old:  "c.snap.Splits() && c.snap.Lone(",
		new:  "false && c.snap.Lone(",
		test: "TestOneEngineWithoutARole",
	}}
}
