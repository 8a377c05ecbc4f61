package main

// framingMutants are faults of where messages of clients begin and end.
func framingMutants() []mutant {
	return []mutant{{
		name: "chunks to a client of HTTP/1.0", file: "proxy/completion.go",
		old: "if c.d.size < 0 && !c.ctx.Request.Header.IsHTTP11() {",
		new: "if false {",
		pkg: proxyPkg, test: "TestStreamToHTTP10EndsWithItsConnection",
	}, {
		name: "stream to HTTP/1.0 that fails ends cleanly", file: "proxy/untilclose.go",
		old: "conn.SetLinger(0)",
		new: "conn.SetLinger(-1)",
		pkg: proxyPkg, test: "TestStreamToHTTP10ThatFailsIsReset",
	}, {
		name: "end of a whole stream to HTTP/1.0 drops what its client has not read", file: "proxy/untilclose.go",
		old: "conn.SetLinger(-1)",
		new: "conn.SetLinger(0)",
		pkg: proxyPkg, test: "TestSlowReaderOfHTTP10GetsAll",
	}, {
		name: "requests framed as fasthttp takes them", file: "proxy/listener.go",
		old: "return c.framing.read(&c.socket, p)",
		new: "return c.socket.Read(p)",
		pkg: proxyPkg, test: "TestBadFramingIsAnsweredOnce/cases/trailer_section_ended_by_LF",
	}, {
		name: "refused byte passed on", file: "proxy/framing.go",
		old: "p[i] = 0",
		new: "_ = p",
		pkg: proxyPkg, test: "TestBadFramingIsAnsweredOnce/cases/trailer_section_ended_by_LF",
	}, {
		name: "length counted from its own line on", file: "proxy/framing.go",
		old: "case f.inHead:\n\t\treturn f.stepHead(p)",
		new: "case false:",
		pkg: proxyPkg, test: "TestGoodFramingIsServed/line_ends_between_requests",
	}, {
		name: "bare LF waits for the header timeout", file: "proxy/framing.go",
		old: "case end >= 0 && cr < 0 && !f.cr:",
		new: "case false:",
		pkg: proxyPkg, test: "TestBadFramingIsAnsweredOnce/cases/waiting,_all_lines_end_in_LF",
	}, {
		name: "NUL in a chunk extension", file: "proxy/chunked.go",
		old: "b < ' ' && b != '\\t' || b == 0x7f",
		new: "b == '\\n'",
		pkg: proxyPkg, test: "TestBadFramingIsAnsweredOnce/cases/NUL_in_an_extension",
	}, {
		name: "folded trailer", file: "proxy/chunked.go",
		old: "if !nameBytes[b] {",
		new: "if b == ':' {",
		pkg: proxyPkg, test: "TestBadFramingIsAnsweredOnce/cases/folded_trailer",
	}}
}
