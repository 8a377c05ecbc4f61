package main

// kvEvents breaks what keeps the index of an engine's blocks equal to its cache.
func kvEvents() []mutant {
	return []mutant{{
		name: "a replay that has a topic is none", in: "cutBatch",
		old:  "n > 4",
		new:  "n > 3",
		test: "TestGapsAreReplayed",
	}, {
		name: "a replay that was cut is taken for whole", in: "(*source).replay",
		old:  "if whole || s.next == from {",
		new:  "if _ = whole; true {",
		test: "TestCutReplays",
	}, {
		name: "a restart of the publisher is not noticed", in: "(*source).resume",
		old:  "restarted = seq == last && xxhash.Sum64(payload) != s.sum",
		new:  "restarted = false",
		test: "TestRestartBeginsAnew",
	}, {
		name: "a block goes with its first copy", in: "(*index).removed",
		old:  "b.copies = max(b.copies, 1) - 1",
		new:  "b.copies = 0",
		test: "TestCopiesCount",
	}, {
		name: "adapters share blocks", in: "(*index).keyOf",
		old:  "e.lora)",
		new:  "0)",
		test: "TestEventsAreRead",
	}, {
		name: "an engine without a role is listened to twice", in: "(*Manager).round",
		old:  "if w.both && role == router.Decode {",
		new:  "if false {",
		test: "TestOneSubscriptionForBothRoles",
	}, {
		name: "a ZeroMQ message of any size is read", in: "(*Conn).frame",
		old:  "if size > uint64(z.most-len(dst)) {",
		new:  "if false {",
		test: "TestMessagesGoThrough",
	}}
}
