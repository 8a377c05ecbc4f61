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
		name: "answers cost no tokens", in: "record.settleKey",
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
		name: "a request whose time ends in the queue is told that the pool is full", in: "(*decodeLeg).denied",
		old:  "if c.overdue() {",
		new:  "if false {",
		test: "TestRequestTimeout",
	}, {
		name: "a key pays nothing for what it leaves", in: "record.spent",
		old:  "answer = c.generated()",
		new:  "answer = 0",
		test: "TestKeyPaysForAnswersThatItLeaves/whole",
	}, {
		name: "a prefill that decode refuses is free", in: "record.spent",
		old:  "max(c.p.prompt, c.p.beside.counted)",
		new:  "0 * c.p.beside.counted",
		test: "TestKeyPaysForAPrefillThatDecodeRefuses",
	}, {
		name: "an answer beyond the model costs a prefill", in: "(*completion).choosePath",
		old:  "c.req.Exceeds(d.Longest())",
		new:  "false && c.req.Exceeds(d.Longest())",
		test: "TestTooManyTokensCostNoPrefill",
	}, {
		name: "any number of prefills for nobody", in: "(*Counts).Wait",
		old:  "n.room() > 0",
		new:  "n.room() > -1000",
		test: "TestFewPrefillsRunForNobody",
	}, {
		name: "keys share the engines' caches", in: "(*added).to",
		old:  "if len(a.salt) > 0 {",
		new:  "if len(a.salt) > 1<<20 {",
		test: "TestBothLegsHaveTheSalt",
	}, {
		name: "a client's own salt goes to the engines", in: "(*Account).Salt",
		old:  "salt = keyed(salt, \"own\", own)",
		new:  "return string(own)",
		test: "TestBothLegsHaveTheSalt",
	}}
}
