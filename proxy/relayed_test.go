package proxy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/intake/limits"
	"xpyd/intake/routes"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// audioForm is an upload as the SDKs send it: the file first, or last.
func audioForm(t *testing.T, fileFirst bool, fields ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	file := func() {
		f, err := w.CreateFormFile("file", "a.wav")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write(audio) // a buffer takes everything
	}
	if fileFirst {
		file()
	}
	for i := 0; i < len(fields); i += 2 {
		if err := w.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if !fileFirst {
		file()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

var audio = bytes.Repeat([]byte("RIFF\r\n\x00\xff"), 20_000)

// Each relayed route brings the engine's own answer, and counts under its name.
func TestRelayedRoutes(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Routes.Pass = []string{"/v2/embed", "GET /load_of_it"} }})
	vector, err := json.Marshal(sim.Embedding("hello"))
	if err != nil {
		t.Fatal(err)
	}
	score := fmt.Sprint(sim.Similarity("a", "b"))
	const docs = `,"query":"a","documents":["b"]}`
	for path, row := range map[string]struct{ body, want string }{
		"/v1/embeddings":              {`,"input":["hello"]}`, `"embedding":` + string(vector)},
		"/pooling":                    {`,"input":"hello"}`, `"data":` + string(vector)},
		"/classify":                   {`,"input":"hello"}`, `"label":"LABEL_0"`},
		"/score":                      {`,"text_1":"a","text_2":"b"}`, `"score":` + score},
		"/v1/score":                   {`,"text_1":"a","text_2":"b"}`, `"score":` + score},
		"/rerank":                     {docs, `"relevance_score":` + score},
		"/v1/rerank":                  {docs, `"relevance_score":` + score},
		"/v2/rerank":                  {docs, `"relevance_score":` + score},
		"/v1/chat/completions/render": {`,"messages":[{"role":"user","content":"x"}]}`, `"token_ids":[`},
		"/tokenize":                   {`,"prompt":"hello"}`, `"count":2`},
	} {
		a := r.post(path, `{"model":"sim"`+row.body)
		if a.status != 200 || !strings.Contains(a.body, row.want) || a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d %s %v, want %s", path, a.status, a.body, a.header, row.want)
		}
		if n := r.metric(`xpyd_relayed_requests_total{outcome="ok",route="` + path + `"}`); n != 1 {
			t.Errorf("%s: counted %v times", path, n)
		}
		if a := r.post(path, `{"model":"nope"`+row.body); a.status != 404 || !strings.Contains(a.body, "NotFoundError") {
			t.Errorf("%s: %d %s, want the engine's own 404", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/v1/audio/transcriptions", "/v1/audio/translations"} {
		for _, fileFirst := range []bool{true, false} {
			body, contentType := audioForm(t, fileFirst, "model", "sim")
			a := r.post(path, body, "Content-Type", contentType)
			if a.status != 200 || !strings.Contains(a.body, `"text":"`+sim.Transcript(audio)+`"`) {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
	// The engine has no such routes, which its own answer says.
	if a := r.post("/v2/embed", `{}`); a.status != 404 || a.body != `{"detail":"Not Found"}` {
		t.Errorf("a route of routes.pass: %d %s", a.status, a.body)
	}
	if a := r.send("GET", "/load_of_it", ""); a.status != 404 || a.body != `{"detail":"Not Found"}` {
		t.Errorf("a GET of routes.pass: %d %s", a.status, a.body)
	}
	if n := r.metric(`xpyd_relayed_requests_total{outcome="client_error",route="other"}`); n != 2 {
		t.Errorf("%v other routes counted, want 2", n)
	}
	r.expectNothingHeld()
}

// A stream of words reaches the client as the engine sends it, and an older client gets it whole.
func TestTranscriptionStreams(t *testing.T) {
	r := newRig(t, rigOptions{})
	body, contentType := audioForm(t, true, "model", "sim", "stream", "true")
	a := r.post("/v1/audio/transcriptions", body, "Content-Type", contentType)
	if a.status != 200 || a.err != nil || !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") ||
		strings.Count(a.body, "transcription.chunk") != 4 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("%d %v %v\n%s", a.status, a.err, a.header, a.body)
	}
	in := r.lazy("POST /v1/audio/transcriptions HTTP/1.0\r\nContent-Type: " + contentType + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body)) + body)
	all, err := io.ReadAll(in)
	if err != nil || !strings.HasSuffix(string(all), "data: [DONE]\n\n") {
		t.Errorf("HTTP/1.0: %v\n%s", err, all)
	}
}

// An upload counts against limits.body_budget until its answer begins, and not until a stream has ended.
func TestTranscriptionStreamHoldsNoUpload(t *testing.T) {
	end := make(chan struct{})
	engine := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		w.(http.Flusher).Flush()
		<-end
	})
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { c.Decode = router.MustEntries(engine.server.URL) }})
	body, contentType := audioForm(t, true, "model", "sim", "stream", "true")
	in := r.lazy("POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " + contentType + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body)) + body)
	if n := r.buffered(); n != 0 {
		t.Errorf("%v bytes of the upload are held beside a stream", n)
	}
	close(end)
	if all, err := io.ReadAll(in); err != nil || !strings.HasSuffix(string(all), "0\r\n\r\n") {
		t.Errorf("%v\n%s", err, all)
	}
}

// An engine that breaks off inside a stream is no clean end, and is counted.
func TestTranscriptionThatBreaksOff(t *testing.T) {
	together(t)
	for name, raw := range map[string]string{
		"chunks":   "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: {}\n\r\n",
		"a length": "Content-Type: Text/Event-Stream; charset=utf-8\r\nContent-Length: 100\r\n\r\ndata: {}\n",
		"no frame": "Content-Type: text/event-stream\r\n\r\ndata: {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			url := rawDecode(t, "HTTP/1.1 200 OK\r\n"+raw)
			r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { c.Decode = router.MustEntries(url) }})
			body, contentType := audioForm(t, true, "model", "sim", "stream", "true")
			if a := r.post("/v1/audio/transcriptions", body, "Content-Type", contentType); a.err == nil || a.status != 200 || a.body != "data: {}\n" {
				t.Errorf("%d %q %v, want what came, and no clean end", a.status, a.body, a.err)
			}
			r.await("counted", func() bool {
				return r.metric(`xpyd_relayed_requests_total{outcome="broken",route="/v1/audio/transcriptions"}`) == 1
			})
		})
	}
}

// A stream that only the end of its connection ends is whole if it says so, to every client.
func TestTranscriptionThatEndsWithItsConnection(t *testing.T) {
	together(t)
	for stream, whole := range map[string]bool{
		"data: {}\n\ndata: [DONE]\n\n":          true,
		"data: {}\r\n\r\ndata:[DONE]\r\n\r\n":   true,
		"data: [DONE]\n\n":                      true,
		"data: {}\n\ndata:  [DONE]  \n\n":       true,
		"data: {\"text\":\"data: [DONE]\n\n":    false,
		"data: [DONE]\n\ndata: {\"text\":\"a\"": false,
		"":                                      false,
	} {
		t.Run(fmt.Sprintf("%.40q", stream), func(t *testing.T) {
			url := rawDecode(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+stream)
			r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { c.Decode = router.MustEntries(url) }})
			body, contentType := audioForm(t, true, "model", "sim", "stream", "true")
			a := r.post("/v1/audio/transcriptions", body, "Content-Type", contentType)
			if stream == "" {
				if a.status != 502 || a.err != nil {
					t.Errorf("%d %q %v, want an error before the answer has begun", a.status, a.body, a.err)
				}
			} else if a.status != 200 || a.body != stream || (a.err == nil) != whole {
				t.Errorf("%d %q %v, want a whole answer: %v", a.status, a.body, a.err, whole)
			}
			in := r.lazy("POST /v1/audio/transcriptions HTTP/1.0\r\nContent-Type: " + contentType + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body)) + body)
			all, err := io.ReadAll(in)
			if got := string(all); err != nil || strings.HasPrefix(got, "HTTP/1.1 200 ") != whole || whole && !strings.HasSuffix(got, stream) {
				t.Errorf("HTTP/1.0: %v %q, want a whole answer: %v", err, got, whole)
			}
		})
	}
}

// JSON that only the end of its connection ends is whole if it is complete, and an error that breaks off is not quoted.
func TestRelayedAnswerThatEndsWithItsConnection(t *testing.T) {
	together(t)
	const whole = `{"data":[{"embedding":[0.5,"}"]}]}`
	for _, media := range []string{"application/json", "Application/JSON ; charset=utf-8", "application/problem+json"} {
		for n := 0; n <= len(whole); n += 1 + n/2 {
			n = min(n, len(whole))
			for status, want := range map[int]int{200: 502, 400: 400} {
				if n == len(whole) {
					want = status
				}
				url := rawDecode(t, fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\n\r\n%s", status, media, whole[:n]))
				r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { c.Decode = router.MustEntries(url) }})
				a := r.post("/v1/embeddings", `{"model":"sim","input":"a"}`)
				if a.err != nil || a.status != want || (a.body == whole) != (n == len(whole)) || !json.Valid([]byte(a.body)) {
					t.Errorf("%s, %d, %d bytes of %d: %d %v %s, want %d", media, status, n, len(whole), a.status, a.err, a.body, want)
				}
			}
			if n == len(whole) {
				break
			}
		}
	}
}

// An engine, or what is in front of it, may encode answers although xpyd asks for none. The client can read
// what it gets.
func TestRelayedAnswersKeepTheirCoding(t *testing.T) {
	together(t)
	for _, status := range []int{200, 400} {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = io.WriteString(w, `{"data":[]}`)
		_ = w.Close()
		engine := newStub(t, func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(status)
			_, _ = w.Write(zipped.Bytes())
		})
		r := newRig(t, rigOptions{prefill: -1, router: engine.asDecode})
		a := r.send("POST", "/v1/embeddings", `{"model":"sim","input":"a"}`, "Accept-Encoding", "identity")
		if coding := a.header.Get("Content-Encoding"); a.status != status || (coding == "gzip") != (a.body == zipped.String()) || coding == "" && !json.Valid([]byte(a.body)) {
			t.Errorf("%d, coding %q, %q", a.status, coding, a.body)
		}
	}
}

// An engine that breaks off inside its answers fails like one that breaks off before them.
func TestEngineThatBreaksOffInsideRelayedAnswersIsEjected(t *testing.T) {
	url := rawDecode(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: {}\n\r\n")
	r := newRig(t, rigOptions{prefill: -1, decode: 2, engine: func(o *sim.Options) { o.Model = "slow" }, router: func(c *router.Config) { inTurn(c); c.Decode[1].URL = url }})
	body, contentType := audioForm(t, true, "model", "slow", "stream", "true")
	ejected := func() bool { return r.metric(`xpyd_backend_ejections_total{backend="`+url) == 1 }
	r.until(ejected, func(int) { r.post("/v1/audio/transcriptions", body, "Content-Type", contentType) })
}

// The model decides: engines of either pool that list it, wherever the form has its name.
func TestRelayedToTheEnginesOfTheModel(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, decode: 2, engine: func(o *sim.Options) {
		if byName("chat", "rare")(o); o.Role == sim.RoleDecode {
			byName("chat", "embed")(o)
		}
	}})
	r.await("listed", func() bool {
		return strings.Contains(r.logs.String(), `"only_decode":["embed"],"only_prefill":["rare"]`)
	})
	for _, model := range []string{"embed", "rare"} {
		for range 4 {
			if a := r.post("/v1/embeddings", `{"input":"x","model":"`+model+`"}`); a.status != 200 || !strings.Contains(a.body, `"model":"`+model+`"`) {
				t.Errorf("%s: %d %s", model, a.status, a.body)
			}
			body, contentType := audioForm(t, true, "model", model)
			if a := r.post("/v1/audio/transcriptions", body, "Content-Type", contentType); a.status != 200 {
				t.Errorf("%s: audio: %d %s", model, a.status, a.body)
			}
		}
	}
}

// The README and the 404 name the same routes, and no admin route is among them.
func TestRoutesAreListed(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{})
	a := r.post("/v1/nothing", `{}`)
	want := "no such route; xpyd serves " + strings.Join(routes.Paths(), ", ")
	if a.status != 404 || !strings.Contains(a.body, `"message":"`+want+`"`) {
		t.Errorf("%d %s, want %s", a.status, a.body, want)
	}
	for _, path := range routes.Paths() {
		if !strings.Contains(string(readme), "`"+path+"`") || !strings.Contains(string(page), "`"+path+"`") {
			t.Errorf("the README or docs/routes.md lacks %s", path)
		}
	}
	for _, path := range []string{"/sleep", "/wake_up", "/reset_prefix_cache", "/collective_rpc", "/v1/load_lora_adapter", "/invocations", "/pause", "/update_weights"} {
		if a := r.post(path, `{}`); a.status != 404 || a.code() != "unknown_route" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		if !strings.Contains(string(page), "`"+path+"`") {
			t.Errorf("docs/routes.md does not say that %s is never served", path)
		}
	}
}

// Keys, media types and sizes are checked as for a completion.
func TestRelayedRoutesAreGuarded(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.APIKeys, c.Limits.Body = []string{"k"}, 4096 }})
	body, contentType := audioForm(t, true, "model", "sim")
	const key = "Bearer k"
	for _, tc := range []struct {
		path, body string
		header     []string
		status     int
		code       string
	}{
		{"/v1/embeddings", `{"input":"x"}`, nil, 401, "invalid_api_key"},
		{"/v1/audio/transcriptions", body, []string{"Content-Type", contentType}, 401, "invalid_api_key"},
		{"/v1/embeddings", `{"input":"x"}`, []string{"Authorization", key, "Content-Type", "text/plain"}, 415, "unsupported_media_type"},
		{"/v1/embeddings", `{"input":"x"}`, []string{"Authorization", key, "Content-Type", contentType}, 415, "unsupported_media_type"},
		{"/v1/audio/transcriptions", `{}`, []string{"Authorization", key}, 415, "unsupported_media_type"},
		{"/v1/audio/transcriptions", `{}`, []string{"Authorization", key, "Content-Type", "multipart/form-data"}, 415, "unsupported_media_type"},
		{"/v1/audio/transcriptions", body, []string{"Authorization", key, "Content-Type", contentType}, 413, "body_too_large"},
	} {
		if a := r.post(tc.path, tc.body, tc.header...); a.status != tc.status || a.code() != tc.code {
			t.Errorf("%s %v: %d %s, want %d %s", tc.path, tc.header, a.status, a.body, tc.status, tc.code)
		}
	}
	if a := r.send("GET", "/v1/embeddings", "", "Authorization", key); a.status != 405 {
		t.Errorf("GET: %d %s", a.status, a.body)
	}
}

// A refusal can be found again by the client's id, whoever refuses.
func TestRelayedRefusalsHaveTheRequestID(t *testing.T) {
	r := keyRig(t, holder("alpha", func(t *limits.Terms) { t.Models = []string{"other"} }))
	for body, status := range map[string]int{`{"model":`: 400, `{"model":"sim","priority":1}`: 400, `{"model":"sim"}`: 404} {
		a := r.post("/v1/embeddings", body, append(as("alpha"), "X-Request-Id", "mine")...)
		if a.status != status || a.header.Get("X-Request-Id") != "mine" {
			t.Errorf("%s: %d %s, id %q", body, a.status, a.body, a.header.Get("X-Request-Id"))
		}
	}
}

// No form brings KV parameters to an engine, and the engine reads the form that xpyd has read.
func TestRelayedFormsBringNoHandles(t *testing.T) {
	asked, form := atomic.Int32{}, atomic.Value{}
	engine := newStub(t, func(_ http.ResponseWriter, q *http.Request) { asked.Add(1); form.Store(q.Header.Get("Content-Type")) })
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) { c.Decode = router.MustEntries(engine.server.URL) }})
	body, contentType := audioForm(t, true, "model", "sim", "vllm_xargs", `{"kv_transfer_params":""}`)
	if a := r.post("/v1/audio/transcriptions", body, "Content-Type", contentType); a.status != 400 || a.code() != "unsupported_parameter" || asked.Load() != 0 {
		t.Errorf("%d %s, and the engine was asked %d times", a.status, a.body, asked.Load())
	}
	if a := r.post("/v1/audio/transcriptions", body, "Content-Type", contentType+"; charset=utf-7"); a.status != 415 {
		t.Errorf("names in UTF-7: %d %s", a.status, a.body)
	}
	body, contentType = audioForm(t, true, "model", "sim", "vllm_xargs", `{"a":1}`)
	// Some engines would take charset* for the charset, and find the name of a field in a value's UTF-7.
	for _, more := range []string{"", "; charset=UTF-8", "; charset*=iso-8859-1''utf-7", "; x=y"} {
		a := r.post("/v1/audio/transcriptions", body, "Content-Type", contentType+more)
		if got := form.Load(); a.status != 200 || got != contentType {
			t.Errorf("%q: %d %s, and the engine got %q, want %q", more, a.status, a.body, got, contentType)
		}
	}
	n := asked.Load()
	two := strings.Replace(body, `name="model"`, "name=\x0c\"model\"", 1)
	if a := r.post("/v1/audio/transcriptions", two, "Content-Type", contentType); a.status != 400 || a.code() != "invalid_form" || asked.Load() != n {
		t.Errorf("a name that readers trim: %d %s, asked %d times more", a.status, a.body, asked.Load()-n)
	}
	r.expectNothingHeld()
}

// A second engine answers what a first one fails, except on a route that xpyd does not know.
func TestRelayedRetries(t *testing.T) {
	together(t)
	for _, fault := range []string{"500", "breaks off"} {
		for path, want := range map[string]int{"/v1/embeddings": 200, "/v2/embed": 0} {
			t.Run(fault+path, func(t *testing.T) {
				var asked atomic.Int32
				bad := newStub(t, func(w http.ResponseWriter, q *http.Request) {
					_, _ = io.Copy(io.Discard, q.Body)
					asked.Add(1)
					if fault == "500" {
						w.WriteHeader(500)
						return
					}
					panic(http.ErrAbortHandler)
				})
				good := newStub(t, func(w http.ResponseWriter, q *http.Request) {
					_, _ = io.Copy(io.Discard, q.Body)
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"data":[]}`)
				})
				r := newRig(t, rigOptions{prefill: -1, decode: 2, config: func(c *proxy.Config) { c.Routes.Pass = []string{"/v2/embed"} },
					router: func(c *router.Config) { inTurn(c); c.Decode = router.MustEntries(bad.server.URL, good.server.URL) }})
				var statuses []int
				for range 2 {
					statuses = append(statuses, r.post(path, `{"model":"sim"}`).status)
				}
				failures := len(slices.DeleteFunc(slices.Clone(statuses), func(s int) bool { return s == 200 }))
				n := asked.Load()
				if want == 200 && (failures > 0 || n == 0) || want == 0 && (failures != 1 || n != 1) {
					t.Errorf("statuses %v, the failing engine was asked %d times", statuses, n)
				}
			})
		}
	}
}

// A client that leaves ends the engine's work, and holds nothing.
func TestRelayedClientLeaves(t *testing.T) {
	begun, left := make(chan struct{}), make(chan struct{})
	d := newStub(t, func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		close(begun)
		<-q.Context().Done()
		close(left)
	})
	r := newRig(t, rigOptions{prefill: -1, router: d.asDecode})
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"+`{"input":"x"}`)
	<-begun
	_ = conn.Close()
	select {
	case <-left:
	case <-time.After(patience):
		d.server.CloseClientConnections()
		t.Fatal("the engine is still at work for a client that has left")
	}
	r.await("counted", func() bool {
		return r.metric(`xpyd_relayed_requests_total{outcome="client_gone",route="/v1/embeddings"}`) == 1
	})
}

// The cap of an engine, its queue and the limit of a client hold for what takes an engine's time.
func TestRelayedRequestsAreCapped(t *testing.T) {
	release := make(chan struct{})
	var running, most atomic.Int32
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		running.Add(-1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	})
	r := newRig(t, rigOptions{prefill: -1, config: func(c *proxy.Config) { c.Limits.ClientInFlight = 2 },
		router: func(c *router.Config) { d.asDecode(c); c.DecodeMaxInFlight, c.Queue.Wait = 1, time.Minute }})
	ended := make(chan int, 2)
	for range 2 {
		go func() { ended <- r.post("/v1/embeddings", `{"input":"x"}`).status }()
	}
	r.await("one running and one in the queue", func() bool { return running.Load() == 1 && r.metric(`xpyd_queued{role="decode"}`) == 1 })
	if a := r.post("/v1/embeddings", `{"input":"x"}`); a.status != 429 || a.code() != "client_limit" {
		t.Errorf("a third: %d %s", a.status, a.body)
	}
	close(release)
	for range 2 {
		if status := <-ended; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	if n := most.Load(); n != 1 {
		t.Errorf("%d at a time on an engine with a cap of 1", n)
	}
}

// A handler of a route of routes.pass may need no body, and gets a request without one as the client sent it.
func TestRelayedWithoutABody(t *testing.T) {
	bodies := make(chan string, 8)
	engine := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		bodies <- fmt.Sprintf("%d %q", q.ContentLength, body)
		_, _ = io.WriteString(w, "done")
	})
	r := newRig(t, rigOptions{prefill: -1, config: func(c *proxy.Config) { c.Routes.Pass = []string{"/v2/refresh"} }, router: engine.asDecode})
	ask := func(path, rest string) string {
		in := r.lazy("POST " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n" + rest)
		all, err := io.ReadAll(in)
		if err != nil {
			t.Error(err)
		}
		return string(all)
	}
	for rest, want := range map[string]string{
		"\r\n":                           `0 ""`,
		"Content-Length: 0\r\n\r\n":      `0 ""`,
		"Content-Length: 3\r\n\r\n \r\n": `3 " \r\n"`,
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n": `0 ""`,
	} {
		if a := ask("/v2/refresh", rest); !strings.HasPrefix(a, "HTTP/1.1 200 ") || !strings.HasSuffix(a, "done") {
			t.Errorf("%q: %s", rest, a)
			continue
		}
		if got := <-bodies; got != want {
			t.Errorf("%q: the engine got %s, want %s", rest, got, want)
		}
	}
	if a := ask("/v1/embeddings", "Content-Length: 0\r\n\r\n"); !strings.HasPrefix(a, "HTTP/1.1 400 ") || !strings.Contains(a, "invalid_json") {
		t.Errorf("a route that takes JSON: %s", a)
	}
}
