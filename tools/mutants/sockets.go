package main

// socketMutants are faults of what stands between the proxy and a connection.
func socketMutants() []mutant {
	return []mutant{{
		name: "release does not wait for a slow D", file: "proxy/release.go",
		old: "if j.sent {",
		new: "if false {",
		pkg: proxyPkg, test: "TestReleaseLetsASlowDecodeReadFirst",
	}, {
		name: "poisoned connection reused", file: "proxy/socket.go",
		old: "return errors.Is(e, unix.EAGAIN)",
		new: "return e == unix.EAGAIN || true",
		pkg: proxyPkg, test: "TestPoisonedConnectionIsNotReused/one_byte",
	}, {
		name: "an early answer is not looked for", file: "proxy/earlyanswer.go",
		old: "if err := s.glimpse(); err != nil {",
		new: "if err := error(nil); err != nil {",
		pkg: proxyPkg, test: "TestEarlyAnswerToALargeBody/decode",
	}, {
		name: "write deadline not armed as an answer begins", file: "proxy/server.go",
		old: "WriteTimeout:                 s.cfg.Timeouts.WriteStall + rearm, // clientWriter moves it on\n",
		new: "",
		pkg: proxyPkg, test: "TestStalledReaderIsCutOff",
	}, {
		name: "wait ends at a deadline that was moved on", file: "proxy/deadline.go",
		old: "return true, arm(d.want)",
		new: "return false, arm(d.want)",
		pkg: proxyPkg, test: "TestDeadlineMovedDuringAWait",
	}, {
		name: "earlier deadline not armed", file: "proxy/deadline.go",
		old: "(at.IsZero() || !at.Before(d.armed))",
		new: "(at.IsZero() || !at.Before(d.armed) || true)",
		pkg: proxyPkg, test: "TestDeadlineMovedDuringAWait",
	}, {
		name: "answer that came at once is overlooked", file: "proxy/socket.go",
		old: "return t.loud // what came",
		new: "return false // what came",
		pkg: proxyPkg, test: "TestAnswerThatIsThereAtOnce",
	}, {
		name: "end that was told of before the last bytes is overlooked", file: "proxy/follow.go",
		old: " && !c.peer.left.Load()",
		new: "",
		pkg: proxyPkg, test: "TestEndBehindTheLastBytesIsFound/FIN/told_before",
	}, {
		name: "end that is told of after the last bytes is overlooked", file: "proxy/follow.go",
		old: "if c.following.on.Load() {",
		new: "if false {",
		pkg: proxyPkg, test: "TestEndBehindTheLastBytesIsFound/FIN/told_after",
	}, {
		name: "client that left before its request was whole is not noticed", file: "proxy/watch.go",
		old: "w.late = append(w.late, p)",
		new: "_ = p",
		pkg: proxyPkg, test: "TestWatcherTellsOfWhoLeftBefore",
	}, {
		name: "departure put down to the next connection", file: "proxy/watch.go",
		old: "p == nil || p.nth != ev.Pad",
		new: "p == nil",
		pkg: proxyPkg, test: "TestWatcherTakesNobodyForAnother",
	}, {
		name: "length beside chunks taken", file: "proxy/head.go",
		old: "ok := h.length == lengthNone && h.minor == 1",
		new: "ok := h.minor == 1",
		pkg: proxyPkg, test: "TestHeadIsReadStrictly/length_and_chunks",
	}}
}
