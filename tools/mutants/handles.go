package main

// fencedHandleMutants: what becomes of handles that no client may see, and no engine should get.
func fencedHandleMutants() []mutant {
	return []mutant{{
		name: "decode's own handle reaches a stream's client", file: "proxy/relay.go",
		old: "if ev.Handle() {",
		new: "if ev.Malformed {",
		pkg: proxyPkg, test: "TestDecodesOwnHandleReachesNoClient",
	}, {
		name: "decode's own handle reaches the client of a large answer", file: "proxy/relay.go",
		old: "n := hider.Hide(buf)",
		new: "n := len(buf)",
		pkg: proxyPkg, test: "TestDecodesOwnHandleIsHiddenInAnswersBeyondTheLimit",
	}, {
		name: "drains under a salt that anybody can send", file: "kvparams/prefill.go",
		old: "rand.Read(salt[:])",
		new: "_ = rand.Reader",
		pkg: proxyPkg, test: "TestDrainCannotBeFoundByASalt",
	}, {
		name: "a handle's blocks not counted", file: "proxy/prefill.go",
		old: "ans.Covers(b.BlockTokens())",
		new: "ans.Covers(0)",
		pkg: proxyPkg, test: "TestHandleOfTooFewBlocksKillsNoDecode/few-blocks",
	}, {
		name: "a prefill whose handle killed a decode is asked again", file: "proxy/suspect.go",
		old: "c.p.tried, c.p.suspect = tried, true",
		new: "_ = tried",
		pkg: proxyPkg, test: "TestPrefillWhoseHandleCostADecodeIsNotAskedAgain/no_other",
	}, {
		name: "engines that were dead before make a request deadly", file: "proxy/broken.go",
		old: "if wrote.Before(since) {",
		new: "if !since.IsZero() {",
		pkg: proxyPkg, test: "TestDeadEnginesMakeNoOtherRequestDeadly",
	}, {
		name: "a decode that hangs takes every place of a release", file: "proxy/release.go",
		old: "limit := int32(maxReleasesEach)",
		new: "limit := int32(maxReleases)",
		pkg: proxyPkg, test: "TestReleasesOfACrowdPassAFrozenDecode/drained",
	}, {
		name: "any 4xx to a release counts", file: "proxy/release.go",
		old: "return e.Error.Type == \"NotFoundError\"",
		new: "return true",
		pkg: proxyPkg, test: "TestAnswersToAReleaseThatFreeNothing/no_such_route",
	}, {
		name: "a repeated prefill is not counted", file: "proxy/broken.go",
		old: "x.repeated = x.sent() && first.stage == stageHead",
		new: "x.repeated = false",
		pkg: proxyPkg, test: "TestRepeatedPrefillIsCounted",
	}}
}
