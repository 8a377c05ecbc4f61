package main

// clientMutants: what of a client's request the engines get, and what clients get that write
// their requests otherwise than most.
func clientMutants() []mutant {
	return []mutant{{
		name: "a query stays with the proxy", file: "proxy/routes.go",
		old: "return target[:i], target[i:]",
		new: "return target[:i], nil",
		pkg: proxyPkg, test: "TestQueryOfARequest",
	}, {
		name: "what Connection names goes on", file: "proxy/connection.go",
		old: "len(v) > 0 && !connectionLists(h, f.lower)",
		new: "len(v) > 0",
		pkg: proxyPkg, test: "TestHeadersThatPassOnce",
	}, {
		name: "the framing may be passed on", file: "configheaders.go",
		old: "case why != \"\":",
		new: "case false:",
		pkg: rootPkg, test: "TestHeadersToPass",
	}, {
		name: "one key gets another's models", file: "proxy/models.go",
		old: "key = sha256.Sum256([]byte(auth))",
		new: "_ = sha256.Size",
		pkg: proxyPkg, test: "TestModelsByTheClientsKey",
	}, {
		name: "clients that have left still ask for models", file: "proxy/models.go",
		old: "if a.waiting--; a.waiting > 0 || !a.until.IsZero() {",
		new: "if a.waiting--; a.waiting >= 0 || !a.until.IsZero() {",
		pkg: proxyPkg, test: "TestClientLeavesTheModels",
	}, {
		name: "a panic at the end of a completion gets out", file: "proxy/finish.go",
		old: "c.safely((*completion).account)",
		new: "c.account()",
		pkg: proxyPkg, test: "TestPanicAtTheEndOfACompletion/chat_streamed",
	}, {
		name: "a label that is not registered ends a completion", file: "metrics/metrics.go",
		old: "return v.WithLabelValues(other, other)",
		new: "return nil",
		pkg: proxyPkg, test: "TestLabelsThatNobodyRegistered",
	}, {
		name: "early answers are cut off by a reset", file: "proxy/listener.go",
		old: "if c.unread.Load() && c.ln.lingering != nil {",
		new: "if false {",
		pkg: proxyPkg, test: "TestEarlyAnswerReachesAClientThatUploads/401",
	}, {
		name: "reading for nothing is not bounded in time", file: "proxy/linger.go",
		old: "if end.Before(at) {",
		new: "if false {",
		pkg: proxyPkg, test: "TestReadingForNothingEnds/bytes_that_trickle",
	}, {
		name: "a list of Connection is not read", file: "proxy/connection.go",
		old: "one, value, _ = bytes.Cut(value, []byte(\",\"))",
		new: "one, value, _ = bytes.Cut(value, []byte(\";\"))",
		pkg: proxyPkg, test: "TestHeadersThatPassOnce",
	}, {
		name: "an expectation in capitals is not seen", file: "proxy/server.go",
		old: "HeaderReceived: knowExpect,",
		new: "",
		pkg: proxyPkg, test: "TestExpectInAnyCase",
	}}
}
