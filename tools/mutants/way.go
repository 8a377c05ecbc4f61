package main

// ways breaks the rules by which engines without a role are planned and chosen.
func ways() []mutant {
	return []mutant{{
		name: "a weight does not count for answers", in: "(*Fleet).answerCost",
		old:  "(e.answers+e.coming+c.others())/c.Share",
		new:  "(e.answers+e.coming+c.others())/1",
		test: "TestSharesOfEngines",
	}, {
		name: "an engine of less share gets as many turns", in: "(*Fleet).begin",
		old:  "e.offered += all[f.turn%len(all)].Share",
		new:  "e.offered += 1",
		test: "TestSharesOfEngines",
	}, {
		name: "a weight that says how fast an engine is counts twice", in: "weigh",
		old:  "c.Share/most*max(1, c.Engine.slow()/fastest)",
		new:  "c.Share/most",
		test: "TestShareOfASlowEngineCountsOnce",
	}, {
		name: "a full KV cache costs nothing", in: "(*Fleet).answerCost",
		old:  "token*(1+full)",
		new:  "token*(1+0*full)",
		test: "TestRoomAndOthers",
	}, {
		name: "what others send does not count", in: "(*Candidate).others",
		old:  "max(0, c.Requests-c.Engine.trips)",
		new:  "0 * c.Requests",
		test: "TestRoomAndOthers",
	}, {
		name: "a silence counts as traffic", in: "(*traffic).begins",
		old:  "underway == 0 && now-t.last > silence",
		new:  "underway < 0",
		test: "TestPlanAfterSilence",
	}, {
		name: "a request that ends twice is taken away twice", in: "(*Fleet).Ended",
		old:  "if t.stage == over {",
		new:  "if false {",
		test: "TestTripsLeaveNothing",
	}, {
		name: "a prefill that is given up stays in its queue", in: "(*Fleet).Whole",
		old:  "t.Way.Prefill.remove(now, t)",
		new:  "",
		test: "TestTripsLeaveNothing",
	}, {
		name: "a session goes where the cost says", in: "routes",
		old:  "w.Key == 0 && ",
		new:  "",
		test: "TestRouteLeavesOthersToDecide",
	}, {
		name: "an errand stays on an engine that its request did not get", in: "(*Lease).Follow",
		old:  "e.Decode != l.Backend || ",
		new:  "",
		test: "TestLeaseFollowsItsErrand",
	}, {
		name: "an engine that is down is in the plan", in: "inPlan",
		old:  "b.usable() && ",
		new:  "",
		test: "TestRouteAvoidsWhatIsDown",
	}, {
		name: "models that were served are never forgotten", in: "(*fleets).of",
		old:  "!listed.lists([]byte(id))",
		new:  "false",
		test: "TestFleetsOfModelsThatWereServed",
	}, {
		name: "what is known of engines that serve the same is lost when their models differ", in: "(*fleets).of",
		old:  `id != "" && `,
		new:  "",
		test: "TestPlansAreThoseInForce",
	}, {
		name: "a spent share bounds nothing", in: "(*Snapshot).acquire",
		old:  "whole.roleless = true;",
		new:  "whole.roleless = false;",
		test: "TestTheShareIsOfEnginesThatOnlyDecode",
	}}
}
