package main

// streams breaks the rules about what counts as success, what a client sees of a stream, and how
// messages are framed on both sides.
func streams() []mutant {
	return []mutant{{
		name: "EOF counts as done", in: "(*decodeLeg).takeEvents",
		old:  "return io.ErrUnexpectedEOF",
		new:  "r.done = true\n\t\treturn nil",
		test: "TestStreamsThatOnlyLookWhole/no-done/chat=true",
	}, {
		name: "[DONE] without finish_reason counts", in: "(*relay).take",
		old:  "if r.finished < r.choices {",
		new:  "if r.finished < 0 {",
		test: "TestStreamsThatOnlyLookWhole/no-finish/chat=true",
	}, {
		name: "[DONE] relayed although a choice is unfinished", in: "(*relay).take",
		old:  "r.broken = r.committed // a client must not see a clean end\n\t\t\treturn",
		new:  "r.broken = r.committed // a client must not see a clean end",
		test: "TestStreamsThatOnlyLookWhole/no-finish/chat=false",
	}, {
		name: "a choice that ends twice ends for two", in: "(*relay).take",
		old:  "ev.Finished - bits.OnesCount64(r.which&ev.Which)",
		new:  "ev.Finished + 0*bits.OnesCount64(r.which&ev.Which)",
		test: "TestEachChoiceMustEnd/stream,_one_ends_twice",
	}, {
		name: "[DONE] as the first event counts", in: "(*decodeLeg).firstEvents",
		old:  "case r.committed:",
		new:  "case r.committed || r.done:",
		test: "TestFailuresBeforeTheFirstTokenAreMended/nothing_but_[DONE]/chat_streamed",
	}, {
		name: "error event followed by [DONE] counts", in: "(*relay).take",
		old:  "r.broken, r.reported = true, true\n\t\tif r.foreign = r.expose && !ev.Malformed && !r.carry.MayCarry(); !r.foreign {",
		new:  "r.foreign, r.reported = true, true\n\t\tif false {",
		test: "TestErrorEventBehindTheLastTokenIsNoSuccess/chat_streamed",
	}, {
		name: "role chunk commits", in: "Event.Commits",
		old:  "return e.Kind == EventContent ||",
		new:  "return e.Kind == EventContent || e.Kind == EventRole ||",
		test: "TestFailuresBeforeTheFirstTokenAreMended/KV_load_failed/chat_streamed",
	}, {
		name: "usage chunk commits", in: "Event.Commits",
		old:  "return e.Kind == EventContent ||",
		new:  "return e.Kind == EventContent || e.Kind == EventUsage ||",
		test: "TestUsageEventCommitsNothing",
	}, {
		name: "a message without a stop_reason is whole", in: "(*typed).message",
		old:  "e.Broken = 1",
		new:  "e.Finished = 1",
		test: "TestAPIsAnswerWithoutAnEnd",
	}, {
		name: "a response of any status is whole", in: "wholeStatus",
		old:  `case "completed", "incomplete":`,
		new:  `case "completed", "incomplete", "cancelled":`,
		test: "TestAPIsAnswerWithoutAnEnd",
	}, {
		name: "partial event relayed", in: "(*decodeLeg).sendEvents",
		old:  "if r.ready > 0 {",
		new:  "if r.ready = len(r.buf); r.ready > 0 {",
		test: "TestDecodeDiesInsideAnEvent/chat=true/event_3",
	}, {
		name: "cached_tokens of a stream not rewritten", in: "(*relay).take",
		old:  "n = r.rewriteUsage(n)",
		new:  "n += 0",
		test: "TestCachedTokensArePrefills/true",
	}, {
		name: "cached_tokens of an answer not rewritten", in: "(*decodeLeg).commitWhole",
		old:  "d.whole.AppendClient(d.out[:0], c.cachedTokens())",
		new:  "d.whole.AppendClient(d.out[:0], -1)",
		test: "TestCachedTokensArePrefills/true",
	}, {
		name: "chunk end between chunks accepted as the body's end", in: "(*Exchange).cutOff",
		old:  "if x.body.UntilEOF {",
		new:  "if x.body.UntilEOF || x.body.Chunked && x.body.Left == 0 {",
		test: "TestResponseFraming/ends_between_two_chunks",
	}, {
		name: "chunks to a client of HTTP/1.0", in: "reply.answer",
		old:  "if c.d.size < 0 && !c.ctx.Request.Header.IsHTTP11() {",
		new:  "if false {",
		test: "TestStreamToHTTP10EndsWithItsConnection",
	}, {
		name: "stream to HTTP/1.0 that fails ends cleanly", in: "reply.answerUntilClose",
		old:  "conn.SetLinger(0)",
		new:  "conn.SetLinger(-1)",
		test: "TestStreamToHTTP10ThatFailsIsReset",
	}, {
		name: "end of a whole stream to HTTP/1.0 drops what its client has not read", in: "reply.answerUntilClose",
		old:  "conn.SetLinger(-1)",
		new:  "conn.SetLinger(0)",
		test: "TestSlowReaderOfHTTP10GetsAll",
	}, {
		name: "requests framed as fasthttp takes them", in: "(*Conn).Read",
		old:  "n, err := c.framing.Read(&c.Socket, p)",
		new:  "n, err := c.Socket.Read(p)",
		test: "TestBadFramingIsAnsweredOnce/cases/trailer_section_ended_by_LF",
	}, {
		name: "refused byte passed on", in: "(*Framing).Take",
		old:  "p[i] = 0",
		new:  "_ = p",
		test: "TestBadFramingIsAnsweredOnce/cases/trailer_section_ended_by_LF",
	}, {
		name: "length counted from its own line on", in: "(*Framing).step",
		old:  "case f.inHead:\n\t\treturn f.stepHead(p)",
		new:  "case false:",
		test: "TestGoodFramingIsServed/line_ends_between_requests",
	}, {
		name: "bare LF waits for the header timeout", in: "(*Framing).stepHead",
		old:  "case end >= 0 && cr < 0 && !f.cr:",
		new:  "case false:",
		test: "TestBadFramingIsAnsweredOnce/cases/waiting,_all_lines_end_in_LF",
	}, {
		name: "NUL in a chunk extension", in: "(*BodyDecoder).lineByte",
		old:  `b < ' ' && b != '\t' || b == 0x7f`,
		new:  `b == '\n'`,
		test: "TestBadFramingIsAnsweredOnce/cases/NUL_in_an_extension",
	}, {
		name: "folded trailer", in: "(*BodyDecoder).nameByte",
		old:  "if !nameBytes[b] {",
		new:  "if b == ':' {",
		test: "TestBadFramingIsAnsweredOnce/cases/folded_trailer",
	}, {
		name: "release does not wait for a slow D", in: "(*release).begin",
		old:  "if left > 0 && j.sent {",
		new:  "if false {",
		test: "TestReleaseLetsASlowDecodeReadFirst",
	}, {
		name: "poisoned connection reused", in: "(*Socket).Quiet",
		old:  "return errors.Is(e, unix.EAGAIN)",
		new:  "return e == unix.EAGAIN || true",
		test: "TestPoisonedConnectionIsNotReused/one_byte",
	}, {
		name: "an early answer is not looked for", in: "(*Socket).writeRest",
		old:  "if err := s.glimpse(); err != nil {",
		new:  "if err := error(nil); err != nil {",
		test: "TestEarlyAnswerToALargeBody/decode",
	}, {
		name: "write deadline not armed as an answer begins", in: "(*Server).newHTTP",
		old:  "WriteTimeout:                 s.cfg.Timeouts.WriteStall + rearm, // clientWriter moves it on",
		new:  "",
		test: "TestAnswerThatBeginsLateIsWritten",
	}, {
		name: "wait ends at a deadline that was moved on", in: "(*deadline).catchUp",
		old:  "return true, arm(d.want)",
		new:  "return false, arm(d.want)",
		test: "TestDeadlineMovedDuringAWait",
	}, {
		name: "earlier deadline not armed", in: "(*deadline).set",
		old:  "(at.IsZero() || !at.Before(d.armed))",
		new:  "(at.IsZero() || !at.Before(d.armed) || true)",
		test: "TestDeadlineMovedDuringAWait",
	}, {
		name: "answer that came at once is overlooked", in: "(*Socket).sendOnce",
		old:  "return t.loud",
		new:  "return false",
		test: "TestAnswerThatIsThereAtOnce",
	}, {
		name: "end that was told of before the last bytes is overlooked", in: "(*Socket).followOnce",
		old:  "|| s.peer.left.Load()",
		new:  "",
		test: "TestEndBehindTheLastBytesIsFound/FIN/told_before",
	}, {
		name: "end that is told of after the last bytes is overlooked", in: "(*Socket).lookAgain",
		old:  "if s.following.on.Load() {",
		new:  "if false {",
		test: "TestEndBehindTheLastBytesIsFound/FIN/told_after",
	}, {
		name: "slow client holds up the streams of its loop", in: "(*Socket).waits",
		old:  "if s.lead != nil {",
		new:  "if false {",
		test: "TestClientWithoutRoomWaitsAlone",
	}, {
		name: "cut does not reach a stream on a loop", in: "(*Socket).armRead",
		old:  "s.recall()",
		new:  "",
		test: "TestDeadlineOnASeat/now,_as_Cut_sets_it",
	}, {
		name: "end that comes with the last bytes is overlooked on a loop", in: "(*follower).turn",
		old:  "if !left {",
		new:  "if true {",
		test: "TestEndOnASeatIsFound/FIN_behind_bytes",
	}, {
		name: "event of a stream that left put down to the next", in: "(*loop).begin",
		old:  "f == nil || f.served || f.nth != ev.Pad",
		new:  "f == nil || f.served",
		test: "TestLoopTakesNobodyForAnother",
	}, {
		name: "unpaced streams stay on one goroutine", in: "(*loop).serve",
		old:  "f.quick >= mostQuick",
		new:  "false",
		test: "TestUnpacedStreamsGetUp/again_at_once",
	}, {
		name: "client that left before its request was whole is not noticed", in: "(*Watcher).add",
		old:  "w.late = append(w.late, p)",
		new:  "_ = p",
		test: "TestWatcherTellsOfWhoLeftBefore",
	}, {
		name: "departure put down to the next connection", in: "(*Watcher).report",
		old:  "p == nil || p.nth != ev.Pad",
		new:  "p == nil",
		test: "TestWatcherTakesNobodyForAnother",
	}, {
		name: "length beside chunks taken", in: "(*Head).field",
		old:  "ok := h.Length == LengthNone && h.minor == 1",
		new:  "ok := h.minor == 1",
		test: "TestHeadIsReadStrictly/length_and_chunks",
	}, {
		name: "what Connection names goes on", in: "(*Forward).appendPassed",
		old:  "len(v) > 0 && !ConnectionLists(h, field.lower)",
		new:  "len(v) > 0",
		test: "TestHeadersThatPassOnce",
	}, {
		name: "a panic at the end of a completion gets out", in: "(*completion).finish",
		old:  "s.guard(record{c}.account)",
		new:  "record{c}.account()",
		test: "TestPanicAtTheEndOfACompletion/chat_streamed",
	}, {
		name: "early answers are cut off by a reset", in: "(*Conn).Close",
		old:  "if c.unread.Load() && c.ln.terms.Lingering != nil {",
		new:  "if false {",
		test: "TestEarlyAnswerReachesAClientThatUploads/401",
	}, {
		name: "reading for nothing is not bounded in time", in: "(*Lingering).drain",
		old:  "if end.Before(at) {",
		new:  "if false {",
		test: "TestReadingForNothingEnds/bytes_that_trickle",
	}}
}
