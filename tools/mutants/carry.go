package main

// carries breaks what a client sees of a stream that another engine carries on.
func carries() []mutant {
	return []mutant{{
		name: "text twice: what the client has is shown once more", in: "(*Stream).turn",
		old:  "text, due, ok := kvparams.CutText(text, s.due)",
		new:  "due := s.due[:0]",
		test: "TestStopStringOverTheSeam",
	}, {
		name: "a hole: an event of the continuation is lost", in: "(*Stream).turn",
		old:  "case !ended && len(text) == 0:",
		new:  "case !ended && len(text) < 6:",
		test: "TestStreamIsCarriedOn",
	}, {
		name: "a hole: text that was held back for a stop string", in: "(*Onward).stop",
		old:  "o.Held = max(o.Held, 0)",
		new:  "o.Held = 0",
		test: "TestStopStringOverTheSeam",
	}, {
		name: "the usage is that of the continuation", in: "(*Stream).turn",
		old:  "s.before+max(0, ev.Usage.Completion)",
		new:  "max(0, ev.Usage.Completion)",
		test: "TestStreamIsCarriedOn",
	}, {
		name: "ids whose text the client lacks are part of the prompt", in: "(*Stream).Body",
		old:  "s.answer = s.answer[:s.whole.ids]",
		new:  "s.answer = s.answer[:len(s.answer)]",
		test: "TestStreamIsCarriedOn",
	}, {
		name: "carried once more than carry.max", in: "(*Stream).Next",
		old:  "case s.times >= s.room.Max:",
		new:  "case s.times > s.room.Max:",
		test: "TestCarriedAsOftenAsConfigured",
	}, {
		name: "the ids reach the client", in: "(*Stream).Note",
		old:  "if buf, n = ev.HideIDs(buf, at, n); casts {",
		new:  "if casts {",
		test: "TestStreamIsCarriedOn",
	}, {
		name: "an unknown member is lost at the seam", in: "(*Onward).member",
		old:  "if !copied(name) && !settled(name) {",
		new:  "if !copied(name) && !settled(name) && name == nil {",
		test: "TestWhatIsNotCarried",
	}}
}
