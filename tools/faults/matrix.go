package main

// matrix is every row, in order. A test that is renamed is renamed here too: a name
// that no test has fails the row.
func matrix() []row {
	rows := prefillRows()
	rows = append(rows, decodeRows()...)
	rows = append(rows, clientRows()...)
	rows = append(rows, processRows()...)
	return append(rows, edgeRows()...)
}

// prefillRows: the first leg fails, before D has anything.
func prefillRows() []row {
	return []row{{
		id: "T1", what: "P refuses, or drops each SYN: another P within the dial timeout; ejected after five",
		tests: []string{"proxy.TestDeadPrefillIsPassedOver", "proxy.TestDialThatNobodyAnswers",
			"router.TestFailuresEject"},
		choice: true,
	}, {
		id: "T2", what: "P and D close idle connections sooner than the proxy does: no client sees it",
		tests: []string{"proxy.TestEnginesThatCloseIdleConnectionsSooner",
			"proxy.TestStaleConnectionIsReplacedOnce"},
	}, {
		id: "T3", what: "P hangs up: one try elsewhere, inside the retry budget; what two engines die of gets no third",
		tests: []string{"proxy.TestPrefillThatHangsUpIsTriedOnceElsewhere",
			"proxy.TestPrefillRetriesShareTheBudget", "proxy.TestRequestsOfAKilledPrefillObeyTheBudget",
			"proxy.TestDeadlyRequestEndsAfterTwoEngines", "proxy.TestEnginesThatAnswerAsTheyDieAreTwoAtMost"},
		choice: true,
	}, {
		id: "T4", what: "P freezes: 504 on time, its connection closed, nothing left to its lease",
		tests: []string{"proxy.TestFrozenPrefill", "proxy.TestPrefillTimeout"},
	}, {
		id: "T5", what: "P stalls inside its answer: 504, no other P",
		tests: []string{"proxy.TestPrefillThatStallsInItsAnswer"},
	}, {
		id: "T6", what: "each status of P: what the client gets, who is asked next, who is blamed",
		tests: []string{"proxy.TestStatusOfPrefill", "proxy.TestInterimAnswerOfPrefillIsSkipped",
			"proxy.TestRefusedKeyEjects", "proxy.TestEarlyAnswerToALargeBody"},
		alone: []string{"proxy.TestWrongBackendKeyIsTheProxysFault"},
	}, {
		id: "T7", what: "no handle, or one that is malformed or names a foreign host: D never gets it; another P, or D alone",
		tests: []string{"proxy.TestUnusableHandlesNeverReachDecode", "proxy.TestHandlesOfAnotherShape",
			"proxy.TestHostOfAHandle", "proxy.TestHandleOfTooFewBlocksKillsNoDecode",
			"proxy.TestPrefillWhoseHandleCostADecodeIsNotAskedAgain", "proxy.TestPrefillEngineWithUnusableHandles",
			"proxy.TestFailedPrefillEndsInDecodeAlone", "proxy.TestSecondRoundOfADecodeAlone",
			"proxy.TestSpentRetriesEndInDecodeAlone",
			"proxy.TestFailedPrefillIsAnErrorWhereDecodeAloneIsOff"},
	}, {
		id: "T8", what: "P's answer cut at every byte, in both framings: 502, D is not asked",
		tests: []string{"proxy.TestCutPrefillAnswerIsNone"},
	}, {
		id: "T9", what: "P's answer is huge, has a huge head, is packed or badly framed: another P or 502, little memory; size alone is nobody's fault",
		tests: []string{"proxy.TestUnreadablePrefillAnswers", "proxy.TestHugePrefillAnswerTakesLittleMemory",
			"proxy.TestStatusCountsBeforeSize", "proxy.TestLargePrefillAnswerIsNobodysFault"},
	}}
}

// decodeRows: a handle is out, or the stream has begun.
func decodeRows() []row {
	return []row{{
		id: "T10", what: "P is killed after its answer, before D pulls: a new round elsewhere, the right text",
		tests:  []string{"proxy.TestPrefillKilledBeforeDecodePulls", "sim.TestPrefillEngineDiesAfterItsAnswer"},
		choice: true,
	}, {
		id: "T11", what: "D refuses, answers 400 or 500, an error first, or nothing: no handle goes out twice, but after a failed dial",
		tests: []string{"proxy.TestFailedDecodeNeverSeesAHandleAgain",
			"proxy.TestHandleOfARefusedDialGoesElsewhere", "proxy.TestHandleGoesToOneDecodeRequest",
			"proxy.TestRejectedByDecodeFreesPrefill", "proxy.TestNoSecondTryForAHandle"},
		alone: []string{"proxy.TestFailuresBeforeTheFirstTokenAreMended"},
	}, {
		id: "T12", what: "D ends a stream of 40 events at each byte and each event: one error event, no part of one, no clean end",
		tests: []string{"proxy.TestReleaseLetsASlowDecodeReadFirst"},
		alone: []string{"proxy.TestStreamCutAtEachByte", "proxy.TestStreamCutBeforeTheFirstToken",
			"proxy.TestDecodeDiesInTheStream", "proxy.TestDecodeDiesInsideAnEvent",
			"proxy.TestStreamToHTTP10ThatFailsIsReset"},
	}, {
		id: "T13", what: "D's stream is reset, corrupted, sliced or delayed: an error event, or the same bytes",
		alone: []string{"proxy.TestStreamCutAtEachByte", "proxy.TestStreamSlowedKeepsItsBytes",
			"proxy.TestStreamWithOneBitFlipped", "proxy.TestHeadWithOneBitFlipped",
			"proxy.TestAnswersThatCannotBeReadAreMended"},
	}, {
		id: "T14", what: "D freezes in mid-stream: whole if it thaws in time, else one error event and nothing after it",
		alone: []string{"proxy.TestStreamFrozenAndThawed", "proxy.TestDecodeTimeouts",
			"proxy.TestStreamIdleHoldsFromTheFirstEvent"},
	}}
}

// clientRows: what clients do.
func clientRows() []row {
	return []row{{
		id: "T15", what: "the client closes, resets or half-closes in each phase: nothing waits for a lease",
		tests: []string{"proxy.TestClientLeavesInEachPhase", "proxy.TestClientsLeaveInEveryPhaseAtOnce",
			"proxy.TestClientsLeaveTheQueues", "proxy.TestHalfClosedClientIsNeverToldOfSuccess",
			"proxy.TestReleasesOfACrowdPassAFrozenDecode"},
		alone: []string{"proxy.TestClientLeavesTheModels", "proxy.TestEarlyAnswerReachesAClientThatUploads"},
	}, {
		id: "T16", what: "the client reads a byte a second, or nothing: cut off, D cancelled; a steady one is served",
		alone: []string{"proxy.TestReadersThatHardlyRead", "proxy.TestStalledReaderIsCutOff",
			"proxy.TestSlowStreamReaderIsServed", "proxy.TestSlowButSteadyReaderIsServed",
			"proxy.TestAnswersThatNobodyReadsAreBounded", "proxy.TestSlowReaderOfAWholeAnswerHoldsNoDecodeSlot",
			"proxy.TestSlowReaderOfTokensIsServed"},
	}, {
		id: "T17", what: "a second request pipelined behind a stream: answered in order",
		alone: []string{"proxy.TestPipelinedRequestDuringAStream", "proxy.TestPipelinedRequestsAreAnsweredInOrder"},
	}}
}

// processRows: signals, reloads, pools that are down, networks, names, clocks, limits.
func processRows() []row {
	return []row{{
		id: "T18", what: "TERM in each moment, twice, KILL: streams end, handles go back; only KILL strands what D had not got yet",
		tests: []string{"cmd.TestTermInEachMomentLosesNothing", "cmd.TestSecondTermCutsAndStillReleases",
			"cmd.TestThirdTermEndsAtOnce", "cmd.TestKillStrandsOnlyWhatDecodeDoesNotKnow",
			"proxy.TestShutdownEndsWhatDoesNotFinish"},
		alone: []string{"proxy.TestShutdownEndsAnUpload", "proxy.TestDrainEndsUploads", "proxy.TestDrainCutsReadersThatStandStill", "proxy.TestStreamToHTTP10IsResetAtTheEndOfTheDrain",
			"cmd.TestKilledProcessResetsStreamsOfHTTP10"},
	}, {
		id: "T19", what: "hand-overs to a new process under load: no request fails",
		alone: []string{"cmd.TestHandoverUnderLoad", "cmd.TestHandoverServesIdleConnections",
			"cmd.TestHandoverThatFails", "cmd.TestSuccessorOutlivesAKilledPredecessor",
			"cmd.TestPredecessorKilledAtAnyMoment"},
	}, {
		id: "T20", what: "reload adds, removes, replaces backends in use, or is invalid: all or nothing, nobody notices",
		tests: []string{"cmd.TestReloadUnderLoad", "router.TestReloadIsAllOrNothing",
			"router.TestBackendThatLeftStaysValid"},
		alone: []string{"cmd.TestManyReloads", "daemon.TestReload", "cmd.TestConfigurationFromAPipe",
			"cmd.TestTermWhileTheConfigurationIsRead", "daemon.TestSignalsWhileAReloadHangs"},
	}, {
		id: "T21", what: "all P, all D, both down, and back: 503 at once, no prefill without a D, recovery in time; decode serves all without P, or its share; not ready where each completion fails",
		tests: []string{"proxy.TestWholePoolsDieAndComeBack", "router.TestSlowStart",
			"proxy.TestDecodeServesEverythingWithoutPrefillEngines", "proxy.TestShareOfDecodeIsOfItsSlots",
			"proxy.TestWaitForTheShareEnds", "proxy.TestWhoeverEndsLeavesTheWaitForTheShare",
			"proxy.TestReadyMeansThatACompletionIsServed"},
		alone: []string{"proxy.TestAllDownIsSaidAtOnce", "proxy.TestModelsOfFrozenEngines", "proxy.TestModelsOfEnginesThatAreDown", "proxy.TestReadyWhileThereIsASoundWay",
			"proxy.TestOneClientsFailuresDoNotMakeUnready", "proxy.TestServedCompletionMakesReady",
			"proxy.TestEnginesThatWereDownAreReadyAtOnce", "proxy.TestFailuresMakeUnready", "proxy.TestReplicasDoNotFlapTogether"},
		choice: true,
	}, {
		id: "T22", what: "a backend's or a client's link goes dead: noticed within the keep-alive bound",
		tests: []string{"proxy.TestSocketsGiveUpOnADeadPeerIn30Seconds", "proxy.TestLinkToABackendDies",
			"proxy.TestLinkOfAPooledConnectionDies"},
		alone: []string{"proxy.TestLinkToAClientDies"},
	}, {
		id: "T23", what: "packets and SYNs are lost: success, no retries beyond the budget",
		tests: []string{"proxy.TestLossyLinks", "proxy.TestLostSYNs"},
	}, {
		id: "T24", what: "a name has no address, another, a thousand: what it last stood for holds",
		alone: []string{"proxy.TestNamesOfBackends", "proxy.TestNameServerThatHangsIsNotAskedAtEachDial",
			"proxy.TestConnectionToANameIsNotKeptForEver", "proxy.TestEnginesByNameOutliveTheirNameServer"},
	}, {
		id: "T25", what: "clocks jump: no timer early or late",
		tests: []string{"router.TestTimersRunOutAtTheirTime", "proxy.TestAgeOfAHandle",
			"cmd.TestNothingIsComputedFromTheWallClock"},
	}, {
		id: "T26", what: "few descriptors, little memory, one processor, no reader of the log: requests are shed or lines are, and all comes back",
		tests: []string{"cmd.TestOutOfDescriptors"},
		alone: []string{"cmd.TestLittleMemory", "proxy.TestOutOfDescriptorsDoesNotEndTheServer",
			"cmd.TestStalledLogReaderStopsNothing", "cmd.TestStalledLogReaderGetsEveryLineLater",
			"cmd.TestLogReaderThatGoesAway", "daemon.TestLogThatIsFullDropsAndTells", "cmd.TestFatalErrorWithAStalledReader"},
	}}
}

// edgeRows: the proxy's own faults, pairs, floods, what lies on pooled connections.
func edgeRows() []row {
	return []row{{
		id: "T27", what: "a panic in the handler, in the relay, in a background loop: 500 or an error event, counted, the process lives",
		tests: []string{"proxy.TestPanicGivesEverythingBack", "proxy.TestPanicOutsideAHandler"},
		alone: []string{"proxy.TestPanicInTheRelay", "proxy.TestPanicAtTheEndOfACompletion", "proxy.TestLabelsThatNobodyRegistered"},
	}, {
		id: "T28", what: "too long between P's answer and D: the old handle is not sent, a new round is",
		tests: []string{"proxy.TestHandleThatWaitedTooLongIsReplaced",
			"proxy.TestHandleOlderThanItsLeaseIsNotSent"},
		choice: true,
	}, {
		id: "T29", what: "one P and one D cannot exchange blocks: the pair is banned, neither of them",
		tests: []string{"proxy.TestOnlyThePairThatFailsIsBanned", "router.TestPairBlame",
			"router.TestBannedPairIsAvoided"},
		choice: true,
	}, {
		id: "T30", what: "thousands of idle connections, slow heads and bodies: 408, the others are served as before",
		alone: []string{"cmd.TestCrowdAndSlowClients", "proxy.TestSlowUploadIsAnswered408", "proxy.TestReadingForNothingEnds",
			"proxy.TestUploadThatStopsIsAnswered408", "proxy.TestOneClientLeavesRoomForOthers", "proxy.TestSmallBodiesHaveAReserve"},
	}, {
		id: "T31", what: "more than the queue or one client may have: 503, 429, both with Retry-After",
		alone: []string{"proxy.TestTooManyAtOnce", "proxy.TestClientLimit", "proxy.TestFullBackends"},
	}, {
		id: "T32", what: "bytes that nobody asked for on a pooled connection: never an answer",
		tests: []string{"proxy.TestLateBytesAreNoAnswer", "proxy.TestPoisonedConnectionIsNotReused",
			"proxy.TestUnsolicitedBytesAreNeverAnAnswer"},
	}, {
		id: "T33", what: "text that looks like the end of a stream, split, CRLF, bytes behind [DONE]: content is content",
		alone: []string{"proxy.TestOnlyTheEndIsTheEnd", "proxy.TestEndSplitAcrossReads",
			"proxy.TestAdversarialTextIsContent"},
	}}
}
