package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// The events of a whole chat answer of three tokens.
const (
	roleEvent   = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	firstEvent  = `{"choices":[{"index":0,"delta":{"content":"one"},"finish_reason":null}]}`
	emptyEvent  = `{"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}`
	lastEvent   = `{"choices":[{"index":0,"delta":{"content":"three"},"finish_reason":"length"}]}`
	usageEvent  = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}`
	inlineUsage = `{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1}}`
)

// ask sends one chat to a server that answers with serve, and returns the client's result.
func ask(t *testing.T, o Options, serve http.HandlerFunc) *Answer {
	t.Helper()
	server := httptest.NewServer(heard(serve))
	defer server.Close()
	o.URL, o.API, o.Model = server.URL, Chat, "m"
	if o.Stall == 0 {
		o.Stall = time.Minute
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Do(t.Context(), "id", c.Body("hello", 3), 3)
}

// heard reads a request's body before it serves, because net/http tells a handler only after that when
// its client has left.
func heard(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		serve(w, r)
	}
}

// stream answers with events and ends well, unless the last one is cut short.
func stream(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
		}
	}
}

// breakOff answers with events and breaks the connection.
func breakOff(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stream(events...)(w, r)
		panic(http.ErrAbortHandler)
	}
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, code) }
}

// TestNoLieIsAnAnswer: an answer that is not whole fails with its code, and has no counts of tokens.
func TestNoLieIsAnAnswer(t *testing.T) {
	usage := func(prompt, output int) string {
		return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, prompt, output)
	}
	for name, c := range map[string]struct {
		code  string
		serve http.HandlerFunc
	}{
		"no usage":           {FailNoUsage, stream(roleEvent, firstEvent, lastEvent, "[DONE]")},
		"null usage":         {FailNoUsage, stream(firstEvent, lastEvent, `{"choices":[],"usage":null}`, "[DONE]")},
		"too many tokens":    {FailUsage, stream(firstEvent, lastEvent, usage(7, 4), "[DONE]")},
		"no token by usage":  {FailUsage, stream(firstEvent, lastEvent, usage(7, 0), "[DONE]")},
		"negative usage":     {FailUsage, stream(firstEvent, lastEvent, usage(-7, 3), "[DONE]")},
		"role alone":         {FailNoToken, stream(roleEvent, usageEvent, "[DONE]")},
		"nothing":            {FailNoToken, stream("[DONE]")},
		"half, clean end":    {FailNoDone, stream(roleEvent, firstEvent)},
		"no [DONE]":          {FailNoDone, stream(roleEvent, firstEvent, lastEvent, usageEvent)},
		"half, broken":       {FailCut, breakOff(roleEvent, firstEvent)},
		"no finish":          {FailNoFinish, stream(firstEvent, usageEvent, "[DONE]")},
		"error event":        {FailError, stream(firstEvent, `{"error":{"message":"engine died","code":500}}`, "[DONE]")},
		"older error event":  {FailError, stream(firstEvent, `{"object":"error","message":"engine died"}`, "[DONE]")},
		"no JSON":            {FailEvent, stream(firstEvent, `{"choices":[`, "[DONE]")},
		"429":                {"http_429", status(429, `{"error":{"message":"queue full"}}`)},
		"503":                {"http_503", status(503, "draining")},
		"redirect":           {"http_302", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }},
		"200 without stream": {FailNoStream, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"choices":[]}`) }},
		"no head":            {FailReset, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"after [DONE]":       {FailEvent, stream(firstEvent, lastEvent, usageEvent, "[DONE]\n\ndata: "+firstEvent)}, // in one piece: a client waits for more no longer than endTime
		"usage after [DONE]": {FailEvent, stream(firstEvent, lastEvent, "[DONE]\n\ndata: "+usageEvent)},
		"finished by abort":  {FailError, stream(firstEvent, strings.Replace(lastEvent, "length", "abort", 1), usageEvent, "[DONE]")},
		"finished by error":  {FailError, stream(firstEvent, strings.Replace(lastEvent, "length", "error", 1), usageEvent, "[DONE]")},
		"without end":        {FailUsage, stream(slices.Repeat([]string{firstEvent}, eventsOf(3)+1)...)},
		"huge event":         {FailEvent, func(w http.ResponseWriter, r *http.Request) { stream(strings.Repeat("x", longestEvent+1<<20))(w, r) }},
		"two lines an event": {FailEvent, stream("{\"choices\":[{\"text\":\"x\",\ndata: \"finish_reason\":null}]}", "[DONE]")},
		"unasked gzip":       {FailNoStream, zipped(true)},
		"hidden gzip":        {FailCut, zipped(false)},
		"short of its length": {FailCut, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "4096")
			stream(firstEvent, lastEvent, usageEvent)(w, r)
		}},
		"redirect to an answer": {"http_307", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("again") {
				stream(firstEvent, lastEvent, usageEvent, "[DONE]")(w, r)
				return
			}
			http.Redirect(w, r, r.URL.Path+"?again", http.StatusTemporaryRedirect)
		}},
		"half an event": {FailCut, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: [DO")
		}},
	} {
		a := ask(t, Options{}, c.serve)
		if a.Failure != c.code || a.Detail == "" {
			t.Errorf("%s: failure %q (%s), want %q", name, a.Failure, a.Detail, c.code)
		}
		if a.Prompt != 0 || a.Output != 0 {
			t.Errorf("%s: %d and %d tokens of no answer", name, a.Prompt, a.Output)
		}
	}
}

// zipped answers with a whole stream that nobody can read without unpacking it.
func zipped(told bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if told {
			w.Header().Set("Content-Encoding", "gzip")
		}
		z := gzip.NewWriter(w)
		for _, e := range []string{firstEvent, lastEvent, usageEvent, "[DONE]"} {
			fmt.Fprintf(z, "data: %s\n\n", e)
		}
		_ = z.Close()
	}
}

// TestOddButWhole: an answer that only looks odd counts, and its times are the client's own.
func TestOddButWhole(t *testing.T) {
	whole := stream(roleEvent, firstEvent, lastEvent, usageEvent, "[DONE]")
	for name, c := range map[string]struct {
		tokens int
		serve  http.HandlerFunc
	}{
		"another day's Date": {3, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
			whole(w, r)
		}},
		"trailers": {3, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Cost")
			whole(w, r)
			w.Header().Set("X-Cost", "1")
		}},
		"early hints":             {3, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusEarlyHints); whole(w, r) }},
		"several tokens an event": {3, stream(lastEvent, usageEvent, "[DONE]")},
		"empty tokens":            {3, stream(emptyEvent, emptyEvent, lastEvent, usageEvent, "[DONE]")},
		"usage in each event":     {1, stream(strings.Replace(inlineUsage, `"stop"`, "null", 1), inlineUsage, "[DONE]")},
		"no end of the body":      {3, func(w http.ResponseWriter, r *http.Request) { whole(w, r); panic(http.ErrAbortHandler) }},
	} {
		begun := time.Now()
		a := ask(t, Options{}, c.serve)
		if a.Failure != "" || a.Output != c.tokens {
			t.Errorf("%s: %q (%s), %d tokens", name, a.Failure, a.Detail, a.Output)
		}
		if a.First.Before(begun) || a.Last.Before(a.First) || a.End.Before(a.Last) || time.Since(a.End) < 0 {
			t.Errorf("%s: times %v %v %v", name, a.First, a.Last, a.End)
		}
	}
}

func TestStallsAndBoundsAreFailures(t *testing.T) {
	hang := func(events ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			stream(events...)(w, r)
			<-r.Context().Done()
		}
	}
	if a := ask(t, Options{Stall: 30 * time.Millisecond}, hang(roleEvent, firstEvent)); a.Failure != FailStall || a.First.IsZero() {
		t.Errorf("a stall: %q (%s)", a.Failure, a.Detail)
	}
	busy := func(w http.ResponseWriter, r *http.Request) {
		stream(firstEvent)(w, r)
		for r.Context().Err() == nil {
			stream(`{"choices":[]}`, roleEvent)(w, r)
			time.Sleep(time.Millisecond)
		}
	}
	if a := ask(t, Options{Stall: 30 * time.Millisecond, Timeout: 5 * time.Second}, busy); a.Failure != FailStall {
		t.Errorf("events without tokens hide a stall: %q (%s)", a.Failure, a.Detail)
	}
	if a := ask(t, Options{Stall: time.Millisecond, Timeout: 80 * time.Millisecond}, hang(roleEvent)); a.Failure != FailTimeout {
		t.Errorf("no first token: %q (%s)", a.Failure, a.Detail)
	}
	if a := ask(t, Options{Timeout: 30 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }); a.Failure != FailTimeout {
		t.Errorf("no head: %q (%s)", a.Failure, a.Detail)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{URL: url, API: Completions, Stall: time.Minute, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Do(t.Context(), "id", c.Body("hello", 3), 3); a.Failure != FailConnect || a.Status != 0 {
		t.Errorf("%q (%s)", a.Failure, a.Detail)
	}
}

func TestInterruptionIsNoFailureOfTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(heard(func(w http.ResponseWriter, r *http.Request) {
		stream(firstEvent)(w, r)
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := New(Options{URL: server.URL + "/v1/", API: Chat, Stall: time.Minute, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Do(ctx, "id", c.Body("hello", 3), 3); a.Failure != FailLeft {
		t.Errorf("%q (%s)", a.Failure, a.Detail)
	}
}

// TestLongDetailIsShort: an error page does not fill the report.
func TestLongDetailIsShort(t *testing.T) {
	a := ask(t, Options{}, status(500, strings.Repeat("ä", 5000)))
	if a.Failure != "http_500" || len(a.Detail) > longestDetail+10 {
		t.Errorf("%q with %d bytes", a.Failure, len(a.Detail))
	}
}
