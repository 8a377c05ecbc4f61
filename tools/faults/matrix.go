package main

// matrix is every row, in order. A test that is renamed must be renamed here too, because a name
// that no test has fails the row.
func matrix() []row {
	rows := prefillRows()
	rows = append(rows, decodeRows()...)
	rows = append(rows, clientRows()...)
	rows = append(rows, processRows()...)
	return append(rows, edgeRows()...)
}

// prefillRows are those in which the first leg fails, before D has anything.
func prefillRows() []row {
	return []row{{
		id: "T1", what: "P refuses, or drops each SYN: another P within the dial timeout; ejected after five",
		tests: []string{"TestDeadPrefillIsPassedOver", "TestDialThatNobodyAnswers",
			"TestFailuresEject"},
		choice: true,
	}, {
		id: "T2", what: "P and D close idle connections sooner than the proxy does: no client sees it",
		tests: []string{"TestEnginesThatCloseIdleConnectionsSooner",
			"TestStaleConnectionIsReplacedOnce"},
	}, {
		id: "T3", what: "P hangs up: one try elsewhere, inside the retry budget; what two engines die of gets no third",
		tests: []string{"TestPrefillThatHangsUpIsTriedOnceElsewhere",
			"TestPrefillRetriesShareTheBudget", "TestRequestsOfAKilledPrefillObeyTheBudget",
			"TestDeadlyRequestEndsAfterTwoEngines", "TestEnginesThatAnswerAsTheyDieAreTwoAtMost"},
		choice: true,
	}, {
		id: "T4", what: "P freezes: 504 on time, its connection closed, nothing left to its lease",
		tests: []string{"TestFrozenPrefill", "TestPrefillTimeout"},
	}, {
		id: "T5", what: "P stalls inside its answer: 504, no other P",
		tests: []string{"TestPrefillThatStallsInItsAnswer"},
	}, {
		id: "T6", what: "each status of P: what the client gets, who is asked next, who is blamed",
		tests: []string{"TestStatusOfPrefill", "TestInterimAnswerOfPrefillIsSkipped",
			"TestRefusedKeyEjects", "TestEarlyAnswerToALargeBody"},
		alone: []string{"TestWrongBackendKeyIsTheProxysFault"},
	}, {
		id: "T7", what: "no handle, or one that is malformed or names a foreign host: D never gets it; another P, or D alone",
		tests: []string{"TestUnusableHandlesNeverReachDecode", "TestHandlesOfAnotherShape",
			"TestHostOfAHandle", "TestHandleOfTooFewBlocksKillsNoDecode",
			"TestPrefillWhoseHandleCostADecodeIsNotAskedAgain", "TestPrefillEngineWithUnusableHandles",
			"TestFailedPrefillEndsInDecodeAlone", "TestSecondRoundOfADecodeAlone",
			"TestSpentRetriesEndInDecodeAlone",
			"TestFailedPrefillIsAnErrorWhereDecodeAloneIsOff"},
	}, {
		id: "T8", what: "P's answer cut at every byte, in both framings: 502, D is not asked",
		tests: []string{"TestCutPrefillAnswerIsNone"},
	}, {
		id: "T9", what: "P's answer is huge, has a huge head, is packed or badly framed: another P or 502, little memory; size alone is nobody's fault",
		tests: []string{"TestUnreadablePrefillAnswers", "TestHugePrefillAnswerTakesLittleMemory",
			"TestStatusCountsBeforeSize", "TestLargePrefillAnswerIsNobodysFault"},
	}}
}

// decodeRows are those after a handle was issued, or after the stream has begun.
func decodeRows() []row {
	return []row{{
		id: "T10", what: "P is killed after its answer, before D pulls: a new round elsewhere, the right text",
		tests:  []string{"TestPrefillKilledBeforeDecodePulls", "TestPrefillEngineDiesAfterItsAnswer"},
		choice: true,
	}, {
		id: "T11", what: "D refuses, answers 400 or 500, an error first, or nothing: no handle goes out twice, but after a failed dial",
		tests: []string{"TestFailedDecodeNeverSeesAHandleAgain",
			"TestHandleOfARefusedDialGoesElsewhere", "TestHandleGoesToOneDecodeRequest",
			"TestRejectedByDecodeFreesPrefill", "TestNoSecondTryForAHandle"},
		alone: []string{"TestFailuresBeforeTheFirstTokenAreMended"},
	}, {
		id: "T12", what: "D ends a stream of 40 events at each byte and each event: one error event, no part of one, no clean end",
		tests: []string{"TestReleaseLetsASlowDecodeReadFirst"},
		alone: []string{"TestStreamCutAtEachByte", "TestStreamCutBeforeTheFirstToken",
			"TestDecodeDiesInTheStream", "TestDecodeDiesInsideAnEvent",
			"TestStreamToHTTP10ThatFailsIsReset"},
	}, {
		id: "T13", what: "D's stream is reset, corrupted, sliced or delayed: an error event, or the same bytes",
		alone: []string{"TestStreamCutAtEachByte", "TestStreamSlowedKeepsItsBytes",
			"TestStreamWithOneBitFlipped", "TestHeadWithOneBitFlipped",
			"TestAnswersThatCannotBeReadAreMended"},
	}, {
		id: "T14", what: "D freezes in mid-stream: whole if it thaws in time, else one error event and nothing after it",
		alone: []string{"TestStreamFrozenAndThawed", "TestDecodeTimeouts",
			"TestStreamIdleHoldsFromTheFirstEvent"},
	}}
}

// clientRows are about what clients do.
func clientRows() []row {
	return []row{{
		id: "T15", what: "the client closes, resets or half-closes in each phase: nothing waits for a lease",
		tests: []string{"TestClientLeavesInEachPhase", "TestClientsLeaveInEveryPhaseAtOnce",
			"TestClientsLeaveTheQueues", "TestHalfClosedClientIsNeverToldOfSuccess",
			"TestReleasesOfACrowdPassAFrozenDecode"},
		alone: []string{"TestClientLeavesTheModels", "TestEarlyAnswerReachesAClientThatUploads"},
	}, {
		id: "T16", what: "the client reads a byte a second, or nothing: cut off, D cancelled; a steady one is served",
		alone: []string{"TestReadersThatHardlyRead", "TestStalledReaderIsCutOff",
			"TestSlowStreamReaderIsServed", "TestSlowButSteadyReaderIsServed",
			"TestAnswersThatNobodyReadsAreBounded", "TestSlowReaderOfAWholeAnswerHoldsNoDecodeSlot",
			"TestSlowReaderOfTokensIsServed"},
	}, {
		id: "T17", what: "a second request pipelined behind a stream: answered in order",
		alone: []string{"TestPipelinedRequestDuringAStream", "TestPipelinedRequestsAreAnsweredInOrder"},
	}}
}

// processRows are about signals, reloads, pools that are down, networks, names, clocks and limits.
func processRows() []row {
	return []row{{
		id: "T18", what: "TERM in each moment, twice, KILL: streams end, handles go back; only KILL strands what D had not got yet",
		tests: []string{"TestTermInEachMomentLosesNothing", "TestSecondTermCutsAndStillReleases",
			"TestThirdTermEndsAtOnce", "TestKillStrandsOnlyWhatDecodeDoesNotKnow",
			"TestShutdownEndsWhatDoesNotFinish"},
		alone: []string{"TestShutdownEndsAnUpload", "TestDrainEndsUploads", "TestDrainCutsReadersThatStandStill", "TestStreamToHTTP10IsResetAtTheEndOfTheDrain",
			"TestKilledProcessResetsStreamsOfHTTP10"},
	}, {
		id: "T19", what: "hand-overs to a new process under load: no request fails",
		alone: []string{"TestHandoverUnderLoad", "TestHandoverServesIdleConnections",
			"TestHandoverThatFails", "TestSuccessorOutlivesAKilledPredecessor",
			"TestPredecessorKilledAtAnyMoment"},
	}, {
		id: "T20", what: "reload adds, removes, replaces backends in use, or is invalid: all or nothing, nobody notices",
		tests: []string{"TestReloadUnderLoad", "TestReloadIsAllOrNothing",
			"TestBackendThatLeftStaysValid"},
		alone: []string{"TestManyReloads", "TestReload", "TestConfigurationFromAPipe",
			"TestTermWhileTheConfigurationIsRead", "TestSignalsWhileAReloadHangs"},
	}, {
		id: "T21", what: "all P, all D, both down, and back: 503 at once, no prefill without a D, recovery in time; decode serves all without P, or its share; not ready where each completion fails",
		tests: []string{"TestWholePoolsDieAndComeBack", "TestSlowStart",
			"TestDecodeServesEverythingWithoutPrefillEngines", "TestShareOfDecodeIsOfItsSlots",
			"TestWaitForTheShareEnds", "TestWhoeverEndsLeavesTheWaitForTheShare",
			"TestReadyMeansThatACompletionIsServed"},
		alone: []string{"TestAllDownIsSaidAtOnce", "TestModelsOfFrozenEngines", "TestModelsOfEnginesThatAreDown", "TestReadyWhileThereIsASoundWay",
			"TestOneClientsFailuresDoNotMakeUnready", "TestServedCompletionMakesReady",
			"TestEnginesThatWereDownAreReadyAtOnce", "TestFailuresMakeUnready", "TestReplicasDoNotFlapTogether"},
		choice: true,
	}, {
		id: "T22", what: "a backend's or a client's link goes dead: noticed within the keep-alive bound",
		tests: []string{"TestSocketsGiveUpOnADeadPeerIn30Seconds", "TestLinkToABackendDies",
			"TestLinkOfAPooledConnectionDies"},
		alone: []string{"TestLinkToAClientDies"},
	}, {
		id: "T23", what: "packets and SYNs are lost: success, no retries beyond the budget",
		tests: []string{"TestLossyLinks", "TestLostSYNs"},
	}, {
		id: "T24", what: "a name has no address, another, a thousand: what it last stood for holds",
		alone: []string{"TestNamesOfBackends", "TestNameServerThatHangsIsNotAskedAtEachDial",
			"TestConnectionToANameIsNotKeptForEver", "TestEnginesByNameOutliveTheirNameServer"},
	}, {
		id: "T25", what: "clocks jump: no timer early or late",
		tests: []string{"TestTimersRunOutAtTheirTime", "TestAgeOfAHandle",
			"TestNothingIsComputedFromTheWallClock"},
	}, {
		id: "T26", what: "few descriptors, little memory, one processor, no reader of the log: requests are shed or lines are, and all comes back",
		tests: []string{"TestOutOfDescriptors", "TestIdleConnectionsMakeRoom"},
		alone: []string{"TestLittleMemory", "TestOutOfDescriptorsDoesNotEndTheServer",
			"TestStalledLogReaderStopsNothing", "TestStalledLogReaderGetsEveryLineLater",
			"TestLogReaderThatGoesAway", "TestLogThatIsFullDropsAndTells", "TestFatalErrorWithAStalledReader"},
	}}
}

// edgeRows are about the proxy's own faults, pairs, floods, leftovers on pooled connections, and TLS.
func edgeRows() []row {
	return []row{{
		id: "T27", what: "a panic in the handler, in the relay, in a background loop: 500 or an error event, counted, the process lives",
		tests: []string{"TestPanicGivesEverythingBack", "TestPanicOutsideAHandler"},
		alone: []string{"TestPanicInTheRelay", "TestPanicAtTheEndOfACompletion", "TestLabelsThatNobodyRegistered"},
	}, {
		id: "T28", what: "too long between P's answer and D: the old handle is not sent, a new round is",
		tests: []string{"TestHandleThatWaitedTooLongIsReplaced",
			"TestHandleOlderThanItsLeaseIsNotSent", "TestLeaseBeginsWithTheFirstByteOfAnAnswer"},
		choice: true,
	}, {
		id: "T29", what: "one P and one D cannot exchange blocks: the pair is banned, neither of them",
		tests: []string{"TestOnlyThePairThatFailsIsBanned", "TestPairBlame",
			"TestBannedPairIsAvoided"},
		choice: true,
	}, {
		id: "T30", what: "thousands of idle connections, slow heads and bodies: 408, the others are served as before",
		alone: []string{"TestCrowdAndSlowClients", "TestSlowUploadIsAnswered408", "TestReadingForNothingEnds",
			"TestUploadThatStopsIsAnswered408", "TestOneClientLeavesRoomForOthers", "TestOneAddressLeavesRoomForOthers", "TestSmallBodiesHaveAReserve"},
	}, {
		id: "T31", what: "more than the queue or one client may have: 503, 429, both with Retry-After",
		tests: []string{"TestFloodOfAnotherKey"},
		alone: []string{"TestTooManyAtOnce", "TestClientLimit", "TestFullBackends",
			"TestKeyRequestsPerMinute", "TestKeyTokensRefused", "TestKeysReplaced"},
	}, {
		id: "T32", what: "bytes that nobody asked for on a pooled connection: never an answer",
		tests: []string{"TestLateBytesAreNoAnswer", "TestPoisonedConnectionIsNotReused",
			"TestUnsolicitedBytesAreNeverAnAnswer"},
	}, {
		id: "T33", what: "text that looks like the end of a stream, split, CRLF, bytes behind [DONE]: content is content",
		alone: []string{"TestOnlyTheEndIsTheEnd", "TestEndSplitAcrossReads",
			"TestAdversarialTextIsContent"},
	}, {
		id: "T34", what: "an engine's certificate has expired, is for another name or of another CA, or the engine refuses xpyd's, or hangs in the handshake: down, the log has the fix, its pool serves on, or 503 without a prefill; a handle goes to another D",
		tests: []string{"TestEnginesWhoseCertificateIsRefused", "TestOnlyEngineWhoseCertificateIsRefused",
			"TestEngineWhoseCertificateGoesBad", "TestEngineThatHangsInTheHandshake", "TestCheckProbesOverTLS"},
	}, {
		id: "T35", what: "clients whose certificate has expired or is of another CA, with a version or a protocol that is not taken: turned away, counted, HTTP gets 400, no engine is asked",
		tests: []string{"TestHandshakesThatFail", "TestClientsWhoseCertificateIsRefused"},
	}, {
		id: "T36", what: "certificates and CAs replaced, and the ports handed over, under load over TLS: no stream breaks, no request fails, later connections get the new ones; a bad file changes nothing and is told",
		tests: []string{"TestCertificatesAreReplacedUnderLoad", "TestStreamsOutliveTheirCertificates", "TestBadCertificateFilesChangeNothing",
			"TestHandoverAndNewCertificatesUnderLoadOverTLS"},
	}, {
		id: "T37", what: "TLS ends without close_notify, between records or inside one: D's stream ends in an error event, its whole answer and P's are 502 or mended; an answer to a client that was cut says so; a client that leaves frees all",
		tests: []string{"TestStreamTruncatedOverTLS", "TestWholeAnswerTruncatedOverTLS", "TestTruncatedAnswerOverTLSIsMended",
			"TestPrefillTruncatedOverTLS", "TestAPIsTruncatedOverTLS", "TestTruncatedAnswerOfAnEngineOverTLS",
			"TestCutAnswersGetNoFarewellOfTLS", "TestRequestsThatBreakOffOverTLS", "TestClientThatLeavesOverTLS", "TestEarlyAnswerOverTLS"},
	}, {
		id: "T38", what: "each connector: KV moves, and what two legs cannot serve goes to D alone or is refused",
		tests: []string{"TestConnectorsMoveKV", "TestConnectorsServeWhatCannotBeSplit"},
	}, {
		id: "T39", what: "each connector: P or D dies, P comes back with another id: right answers, nothing pinned",
		tests: []string{"TestConnectorsOutliveAPrefillEngine", "TestConnectorsOutliveADecodeEngine",
			"TestConnectorsFindARestartedPrefillEngine", "TestAHandleForAnotherEngineIsNotSent"},
	}, {
		id: "T40", what: "each connector: the client leaves, or no decode reads what P holds: nothing pinned on P, nothing in use on D",
		tests: []string{"TestConnectorsOfAClientThatLeaves", "TestConnectorsGiveBackWhatNoDecodeReads",
			"TestDecodeOfAClientThatLeftWaitsForALatePrefill", "TestDecodeOfAClientThatLeftEndsAfterItsPrefill",
			"TestConnectorsWhoseEnginesDieOfACut"},
	}, {
		id: "T41", what: "messages, responses, token ids: P is down; D dies at each event, or says no end; the client leaves: as on the other routes",
		tests: []string{"TestAPIsThroughBothLegs", "TestAPIsWithoutPrefillGoToDecodeAlone", "TestAPIsClientLeaves"},
		alone: []string{"TestAPIsWhoseDecodeDies", "TestAPIsErrorEvents", "TestAPIsAnswerWithoutAnEnd",
			"TestAPIsRefuseWhatClientsMayNotSend"},
	}, {
		id: "T42", what: "backends are drained, added, removed or change their role over the admin port under load: nothing is lost, nobody asks a drained one, a restart keeps it",
		tests: []string{"TestDrainUnderLoadLosesNothing", "TestDrainWaitsForTheLastStream", "TestAddAndRemoveUnderLoad",
			"TestRoleChangeUnderLoad", "TestNoLeaseAfterDrained", "TestOldSnapshotTurnsToTheNewOne"},
		alone: []string{"TestStateFileKeepsChanges", "TestChangesThatAreRefused", "TestReloadChangesTimeoutsAndLimits"},
	}, {
		id: "T43", what: "relayed routes: the engine refuses, fails, breaks off at each byte, freezes or stalls in a stream; the client leaves; too many: one more engine where that may be, else an error that says so, never a clean end of a part",
		alone: []string{"TestRelayedRetries", "TestRelayedAnswerCutAtEachByte", "TestRelayedStreamCutAtEachByte",
			"TestRelayedEngineThatFreezes", "TestRelayedPoolsThatAreDown", "TestTranscriptionThatBreaksOff",
			"TestCutRelayedAnswerGetsNoFarewellOfTLS", "TestRelayedClientLeaves", "TestRelayedUploadThatBreaksOff",
			"TestRelayedRequestsAreCapped", "TestRelayedRoutesAreGuarded"},
	}, {
		id: "T44", what: "data-parallel ranks: one breaks off, is stuck or dies; blocks are asked of the wrong rank; a client names another rank; ranks join, drain and leave: only what failed is ejected, and each leg reaches its rank",
		tests: []string{"TestOneRankIsEjectedAlone", "TestADeadRankTakesItsServerDown", "TestPullFromTheWrongRankIsRefused",
			"TestOneLineNamesTheRank", "TestRanksJoinAndLeaveTogether", "TestNoRankOfTheEngineOfTheOtherLeg"},
	}, {
		id: "T45", what: "encode engines refuse, fail, break off, hang or answer what is no encoding; the client leaves; a second round: another encode engine, else the next leg encodes, and encodings go to one leg of their own request",
		tests: []string{"TestEncodeFaults", "TestEncodeAnswersAreChecked", "TestClientLeavesDuringEncode", "TestEncodingsGoToTheFirstRoundAlone",
			"TestEncodingsStayWithTheirRequest", "TestEncodingsOfForeignHosts", "TestEncodeOfADeadlyRequest", "TestEncodeQueue",
			"TestEncodePoolOfTwoConnectors", "TestEncodePoolOfOneOfTwoModels"},
	}, {
		id: "T46", what: "engines of two connectors, of one model or two: no pair across them, in no retry and no release; one engine or all of a connector's prefill engines gone: the others serve; what cannot be split goes where it is served alone",
		tests: []string{"TestTwoConnectorsOfOneModel", "TestTwoModelsOfTwoConnectors", "TestMixedPoolsServeWhatCannotBeSplit",
			"TestMixedPoolsOutliveAnEngine", "TestMixedPoolsWithoutThePrefillEngineOfOne", "TestMixedPoolsGiveBack"},
	}, {
		id: "T47", what: "an engine accepts, its health check passes and it gives nothing: its legs go elsewhere, its streams end later, it comes back; one that is only busy stays",
		tests: []string{"TestWedgedEngineLosesItsLegs", "TestStreamsOfAWedgedEngineEnd", "TestExpiredDeadlinesOnlyRaiseADoubt"},
	}, {
		id: "T48", what: "engines without a role: one dies that is P and D of two requests, or is left alone; the client leaves; ctl role under load: right answers, both legs never on one engine, nothing pinned",
		tests: []string{"TestAnEngineDiesInBothRoles", "TestClientLeavesEnginesWithoutARole", "TestRolesChangeUnderLoad",
			"TestNoRequestHasBothLegsOnOneEngine", "TestNoHandleGoesBackToItsEngine"},
		alone: []string{"TestAnEngineWithoutARoleIsLeftAlone"},
	}, {
		id: "T49", what: "D dies, is cut at each event, hangs or reports an error in mid-stream, with carry.max: another D goes on, as one stream, nothing twice, nothing lost, nothing pinned; else the reason is told",
		tests: []string{"TestStreamIsCarriedOn", "TestStopStringOverTheSeam", "TestKilledDecodeBreaksNoStream", "TestHungStreamIsCarriedOn",
			"TestCarriedAsOftenAsConfigured", "TestWhatIsNotCarried", "TestClientLeavesWhileItsStreamIsCarriedOn"},
	}}
}
