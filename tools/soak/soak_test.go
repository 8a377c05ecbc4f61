package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
	"xpyd/sim/faultnet"
	"xpyd/tools/completion"
	"xpyd/tools/tally"
)

// stubSoak is a soak whose proxy answers every connection with answer and then closes it. answer
// may name the request's id by ID. If it ends in RST, the connection is reset.
func stubSoak(t *testing.T, answer string) *soak {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(conn, strings.ReplaceAll(answer, "ID", req.Header.Get("X-Request-Id")))
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	s := &soak{
		o: Options{Events: 3}, key: "k", verdict: &tally.Verdict{}, tally: newCounts(), faults: newFaultBook(io.Discard, func(time.Time) bool { return false }),
		fleet: &fleet{decOf: map[string]string{}}, proxy: &proxy{addr: ln.Addr().String()},
	}
	s.plan = newPlan(time.Now(), time.Hour)
	s.faults.start(s.plan)
	s.tally.start(s.plan)
	return s
}

func streamHead() string {
	return "HTTP/1.1 200 OK\r\nX-Request-Id: ID\r\nTransfer-Encoding: chunked\r\n\r\n"
}

func httpChunks(events ...string) string {
	var b strings.Builder
	for _, ev := range events {
		// The id takes the place of two letters. The length is that of the real id.
		real := strings.ReplaceAll(ev, "ID", stubID)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(real), ev)
	}
	return b.String()
}

const stubID = "soak-1-1"

// tokens returns a stream's events, one for each of its tokens. The last one finishes.
func tokens(c completion.Call, n int) (events []string) {
	for i := range n {
		text := strings.TrimPrefix(sim.Text(c.Prompt, i+1), sim.Text(c.Prompt, i))
		finish := "null"
		if i == c.Tokens-1 {
			finish = `"length"`
		}
		events = append(events, fmt.Sprintf("data: {\"id\":\"cmpl-ID-0123abcd\",\"choices\":[{\"text\":%q,\"finish_reason\":%s}]}\n\n", text, finish))
	}
	return events
}

// What a proxy may do to a client is told apart from what it may not.
func TestSoakClientTellsEndsFromLies(t *testing.T) {
	q := completion.Call{Stream: true, Prompt: "a", Tokens: 3}
	all := tokens(q, 3)
	failure := "data: {\"error\":{\"message\":\"m\",\"type\":\"t\",\"param\":null,\"code\":\"decode_failed\"}}\n\n"
	done, last := "data: [DONE]\n\n", "0\r\n\r\n"
	whole := func(body string) string {
		return fmt.Sprintf("HTTP/1.1 %%s\r\nX-Request-Id: ID\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	for _, tc := range []struct {
		name, answer string
		ending, lie  string // one of them
	}{
		{"whole", streamHead() + httpChunks(append(all, done)...) + last, "complete", ""},
		{"error event, broken off", streamHead() + httpChunks(append(tokens(q, 2), failure)...), "broken off: decode_failed", ""},
		{"refused", strings.Replace(whole(`{"error":{"message":"m","type":"t","code":"overloaded"}}`), "%s", "503 x\r\nRetry-After: 1", 1), "503 overloaded", ""},
		{"no [DONE]", streamHead() + httpChunks(all...) + last, "", "a clean end of a stream that is not whole"},
		{"no finish_reason", streamHead() + httpChunks(append(tokens(q, 2), done)...) + last, "", "a clean end of a stream that is not whole"},
		{"clean end behind an error event", streamHead() + httpChunks(append(tokens(q, 2), failure)...) + last, "", "a clean end of a stream that is not whole"},
		{"[DONE] behind an error event", streamHead() + httpChunks(append(tokens(q, 2), failure, done)...), "", "an event after the last one"},
		{"broken off without an error event", streamHead() + httpChunks(tokens(q, 2)...), "", "a stream broken off without an error event"},
		{"broken off behind [DONE]", streamHead() + httpChunks(append(all, done)...), "", "a stream broken off behind [DONE]"},
		{"half an event before the error", streamHead() + httpChunks(all[0], all[1][:20]+"\n\n", failure), "", "an event that is no JSON"},
		{"a token lost", streamHead() + httpChunks(all[0], all[2], done) + last, "", "wrong text in a stream"},
		{"a token twice", streamHead() + httpChunks(all[0], all[0]), "", "wrong text in a stream"},
		{"another one's event", streamHead() + httpChunks(strings.Replace(all[0], "cmpl-ID", "cmpl-soak-9-9", 1)), "", "an event of another request"},
		{"another one's answer", strings.Replace(streamHead(), "ID", "soak-9-9", 1), "", "an answer to another request"},
		{"refused without Retry-After", strings.Replace(whole(`{"error":{"message":"m","type":"t","code":"overloaded"}}`), "%s", "503 x", 1), "", "a refusal without Retry-After"},
		{"error without an object", strings.Replace(whole(`oops`), "%s", "502 x", 1), "", "an error answer that is no error object"},
		{"nothing", "", "", "a connection that failed"},
		{"no HTTP", "oops\r\n\r\n", "", "an answer that is no HTTP"},
	} {
		s := stubSoak(t, tc.answer)
		c := &client{s: s, r: rand.New(rand.NewPCG(1, 1))}
		c.do(&request{load: "stream", id: stubID, Call: q})
		c.drop()
		got := s.verdict.Of("")
		switch {
		case tc.lie == "" && len(got) > 0:
			t.Errorf("%s: called a lie: %s: %s", tc.name, got[0].What, got[0].First)
		case tc.lie != "" && (len(got) != 1 || got[0].What != tc.lie):
			t.Errorf("%s: breaches %+v, want %q", tc.name, got, tc.lie)
		case tc.lie == "" && s.tally.endingsOf(stageWarm)[ending{"stream", tc.ending}] != 1:
			t.Errorf("%s: endings %v, want %q", tc.name, s.tally.endingsOf(stageWarm), tc.ending)
		}
	}
}

// The engines' own lines tell what happened to a handle.
func TestHandleBookFindsMisuse(t *testing.T) {
	now := time.Now()
	p := sim.Record{Leg: "prefill", Engine: "prefill-0", RemoteRequestID: "h1", Time: now, Outcome: "ok"}
	d := sim.Record{Leg: "decode", Engine: "decode-0", RemoteRequestID: "h1", Time: now, Outcome: "ok"}
	with := func(r sim.Record, edit func(*sim.Record)) sim.Record { edit(&r); return r }
	for _, tc := range []struct {
		name    string
		records []sim.Record
		held    bool
		want    string
	}{
		{"used once", []sim.Record{p, d}, false, ""},
		{"released after it was sent", []sim.Record{p, d, with(d, func(r *sim.Record) { r.Outcome = "rejected" })}, false, ""},
		{"used twice", []sim.Record{p, d, with(d, func(r *sim.Record) { r.Engine = "decode-1" })}, false, "a handle used twice"},
		{"used late", []sim.Record{p, with(d, func(r *sim.Record) { r.Time = now.Add(kvLease) })}, false, "a handle used after lease − margin"},
		{"held up on the way", []sim.Record{p, with(d, func(r *sim.Record) { r.Time = now.Add(kvLease) })}, true, ""},
		{"foreign blocks", []sim.Record{p, with(d, func(r *sim.Record) { r.WrongKV = true })}, false, "an answer from another prompt's blocks"},
		{"never issued", []sim.Record{with(d, func(r *sim.Record) { r.Time = now.Add(-time.Minute) })}, false, "a handle that no prefill engine issued"},
	} {
		v := &tally.Verdict{}
		b := newHandleBook(newCounts(), v)
		b.held = func(string, time.Time, time.Time) bool { return tc.held }
		b.swept = now.Add(-time.Hour)
		lines := json.NewEncoder(b)
		for _, rec := range tc.records {
			b.swept = now.Add(-time.Hour)
			if err := lines.Encode(rec); err != nil {
				t.Fatal(err)
			}
		}
		got := v.Of(invHandles)
		if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || got[0].What != tc.want) {
			t.Errorf("%s: breaches %+v, want %q", tc.name, got, tc.want)
		}
	}
}

// Only a fault that can have prevented a release excuses blocks that waited for their lease.
func TestBlocksLeftToTheirLeaseNeedAnExcuse(t *testing.T) {
	engine, err := sim.Start(sim.Options{Name: "prefill-0", Role: sim.RolePrefill})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	now := time.Now()
	l := leased{&station{Engine: engine}, sim.Entry{PinnedAt: now, FreedAt: now.Add(kvLease)}}
	for _, tc := range []struct {
		engine, kind string
		from, until  time.Duration // after the pin
		want         bool
	}{
		{"prefill-0", "connection rst", 0, 0, true},
		{"prefill-0", "connection rst", 3 * time.Second, 3 * time.Second, false}, // the answer had arrived long before
		{"prefill-1", "connection rst", 0, 0, false},
		{"prefill-0", "connection delay", 0, 0, false},
		{"prefill-0", kindFreeze, 2 * time.Second, 7 * time.Second, true},
		{"prefill-0", kindScript, 0, time.Second, false},
		{"decode-1", kindFreeze, -time.Second, time.Second, true},
		{"decode-1", "connection rst", 0, 0, false}, // another D can tell P
		{"decode-1", kindKill, 0, time.Second, false},
	} {
		b := newFaultBook(io.Discard, func(time.Time) bool { return false })
		b.file(&fault{Engine: tc.engine, Kind: tc.kind, from: now.Add(tc.from), until: now.Add(tc.until)})
		if got := b.excuse(l); (got != "") != tc.want {
			t.Errorf("%s %s from %v to %v: excuse %q", tc.engine, tc.kind, tc.from, tc.until, got)
		}
	}
	// A calm stretch has no excuse.
	b, v := newFaultBook(io.Discard, func(time.Time) bool { return false }), &tally.Verdict{}
	b.start(newPlan(now.Add(-time.Second), time.Hour))
	b.file(&fault{Engine: "prefill-0", Kind: kindFreeze, from: now, until: now})
	if b.found(l, v); len(v.Of(invBlocks)) != 1 {
		t.Error("blocks left to their lease before the first fault are no breach")
	}
}

func TestSoakLogFindsWhatMustNotBeThere(t *testing.T) {
	words := strings.Fields(sim.Text("prompt", 4))
	for _, tc := range []struct{ line, want string }{
		{`{"level":"info","message":"completion"}`, ""},
		{`{"m":"` + secret + `123"}`, "a prompt in the log"},
		{`{"m":"sk-1"}`, "a key in the log"},
		{"{\"m\":\"a\r\"}", "a raw CR in the log"},
		{"panic: oops", "a line that is no JSON"},
		{`{"m":" ` + strings.Join(words, " ") + ` "}`, "a completion in the log"},
		{`{"m":" ` + strings.Join(words[:3], " ") + ` "}`, ""},
	} {
		v := &tally.Verdict{}
		l, err := newProxyLog(t.TempDir(), "sk-1", newCounts(), v, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(l.pipe, tc.line+"\n"); err != nil {
			t.Fatal(err)
		}
		l.close()
		got := v.Of(invLogs)
		if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || got[0].What != tc.want) {
			t.Errorf("%s: breaches %+v, want %q", tc.line, got, tc.want)
		}
	}
}

func TestSampleTellsGaugesFromCounters(t *testing.T) {
	s, err := readSample(strings.NewReader("# TYPE xpyd_in_flight gauge\nxpyd_in_flight{role=\"decode\"} 2\n" +
		"# TYPE xpyd_backend_up gauge\nxpyd_backend_up{role=\"decode\"} 1\n# TYPE xpyd_panics_total counter\nxpyd_panics_total 3\n" +
		"# TYPE xpyd_engine_requests_running gauge\nxpyd_engine_requests_running{role=\"decode\"} 4\n" +
		"# TYPE xpyd_price_per_leg_seconds gauge\nxpyd_price_per_leg_seconds{work=\"local\"} 0.5\n" +
		"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e+09\n"))
	if err != nil || s.begun != 1.7e9 {
		t.Fatalf("sample %+v, error %v", s, err)
	}
	if open := s.openGauges(); !slices.Equal(open, []string{`xpyd_in_flight{role="decode"} 2`}) {
		t.Errorf("open gauges %q", open)
	}
}

func TestSlopeIsThatOfTheLastProcess(t *testing.T) {
	m, begin := &sampler{}, time.Now()
	for i := range 60 {
		at := begin.Add(time.Duration(i) * time.Second)
		m.rss = append(m.rss, rssSample{at, 1, float64(i) * 1e6})
		m.rss = append(m.rss, rssSample{at, 2, 20<<20 + float64(i)*1024}) // 1 KiB a second
	}
	if kib, ok := m.slope(begin, begin.Add(time.Minute)); !ok || kib < 59.9 || kib > 60.1 {
		t.Errorf("slope %v KiB/min, ok %v, want 60", kib, ok)
	}
	if _, ok := m.slope(begin.Add(50*time.Second), begin.Add(time.Minute)); ok {
		t.Error("ten samples make a slope")
	}
}

func TestEjectionsOfMoreThanHalfAPool(t *testing.T) {
	v := &tally.Verdict{}
	alone := false
	e := ejections{now: map[string]ejection{}, most: map[string]int{}, alone: func() bool { return alone }}
	e.add(ejection{Role: "decode", Backend: "of the one process", For: 5000}, v)
	e.add(ejection{Role: "decode", Backend: "of the other", For: 5000}, v)
	alone = true
	e.add(ejection{Role: "decode", Backend: "a", For: 5000}, v)
	e.add(ejection{Role: "prefill", Backend: "b", For: 5000}, v)
	e.forget() // a reload has removed it
	e.add(ejection{Role: "decode", Backend: "c", For: 5000}, v)
	if got := v.Of(""); len(got) > 0 {
		t.Errorf("one of three at a time is a breach: %+v", got)
	}
	e.add(ejection{Role: "decode", Backend: "d", For: 5000}, v)
	if got := v.Of(invHealth); len(got) != 1 {
		t.Errorf("two of three at a time: breaches %+v", got)
	}
}

// The packages can read every fault that a run may draw.
func TestDrawnFaultsCanBeRead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		if text := drawScript(r); text != "" {
			if _, err := faultnet.Parse(text); err != nil {
				t.Error(err)
			}
		}
		for _, role := range []sim.Role{sim.RolePrefill, sim.RoleDecode} {
			if _, err := sim.ParseFault(drawSimFault(r, role)); err != nil {
				t.Error(err)
			}
		}
	}
}
