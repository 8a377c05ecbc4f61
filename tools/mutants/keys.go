package main

// keys breaks the rules about what the holder of a key may use, and whose turn it is.
func keys() []mutant {
	return []mutant{{
		name: "a key that is gone still lets in", in: "(*Book).write",
		old:  "b.page.Store(p)",
		new:  "b.page.CompareAndSwap(nil, p)",
		test: "TestKeysReplaced",
	}, {
		name: "the place of a key not given back", in: "(*Use).End",
		old:  "a.inFlight--",
		new:  "",
		test: "TestClientLimit/of_a_key",
	}, {
		name: "answers cost no tokens", in: "(*completion).settleKey",
		old:  "c.use.End(prompt + answer)",
		new:  "_ = answer\n\tc.use.End(prompt)",
		test: "TestKeyTokensPerMinute",
	}, {
		name: "a minute's requests come back at once", in: "(*bucket).fill",
		old:  "b.left = min(limit, b.left+limit*since.Minutes())",
		new:  "b.left = limit",
		test: "TestKeyRequestsPerMinute",
	}, {
		name: "a key may use every model", in: "(*Terms).allows",
		old:  "if len(t.Models) == 0 {",
		new:  "if true {",
		test: "TestKeyModels",
	}, {
		name: "a form may name a second model", in: "Form",
		old:  "case name == \"model\" && model != nil:",
		new:  "case false:",
		test: "TestKeyModels",
	}, {
		name: "a part may have two names", in: "(*part).readHead",
		old:  "p.name != nil || !p.readDisposition(value)",
		new:  "!p.readDisposition(value)",
		test: "TestFormsThatReadersDoNotAgreeOn",
	}, {
		name: "a key that may not names a priority", in: "(*Server).strip",
		old:  "h.Del(heads.Priority)",
		new:  "",
		test: "TestKeyPriority",
	}, {
		name: "the queue is first come, first served", in: "turn",
		old:  "w.Flow, w.Priority = uint64(of.Number()), priority",
		new:  "w.Flow, w.Priority = 0, priority",
		test: "TestWaitingTakesTurns",
	}, {
		name: "a flow saves up turns while it is idle", in: "(*fairLine).add",
		old:  "f.given = max(f.given, f.class.floor)",
		new:  "",
		test: "TestIdleFlowSavesUpNothing",
	}, {
		name: "a request whose time ends in the queue is told that the pool is full", in: "(*completion).decodeDenied",
		old:  "if c.overdue() {",
		new:  "if false {",
		test: "TestRequestTimeout",
	}}
}
