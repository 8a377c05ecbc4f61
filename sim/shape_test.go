package sim_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// recording is one exchange with a real vLLM 0.32.0: the request as it was sent
// and the raw answer.
type recording struct {
	name    string
	head    string // of the request, without its Content-Length
	body    string
	answer  string
	decodes bool // its request carried a handle
}

func recordings(t *testing.T) []recording {
	t.Helper()
	files, err := filepath.Glob("testdata/*.http")
	if err != nil || len(files) < 50 {
		t.Fatalf("testdata: %d recordings, %v", len(files), err)
	}
	var all []recording
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		request, answer, found := strings.Cut(string(raw), "\n"+strings.Repeat("=", 78)+"\n")
		head, body, ok := strings.Cut(request, "\r\n\r\n")
		if !found || !ok {
			t.Fatalf("%s is no recording", file)
		}
		var lines []string
		for line := range strings.SplitSeq(head, "\r\n") {
			if !strings.HasPrefix(line, "Content-Length:") {
				lines = append(lines, line)
			}
		}
		all = append(all, recording{
			name: strings.TrimSuffix(filepath.Base(file), ".http"), head: strings.Join(lines, "\r\n"),
			body: strings.TrimSuffix(body, "\n"), answer: answer, decodes: strings.Contains(body, `"do_remote_prefill": true`),
		})
	}
	return all
}

// replay sends the recorded request and returns the raw answer.
func replay(t *testing.T, e *sim.Engine, r recording, body string) string {
	t.Helper()
	nc, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	head := r.head
	if body != "" {
		head += "\r\nContent-Length: " + itoa(len(body))
	}
	if _, err := io.WriteString(nc, head+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(nc)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	return string(answer)
}

// withFreshHandle gives a recorded decode request a handle of p in place of the
// one it was recorded with; a foreign engine stays foreign.
func withFreshHandle(t *testing.T, p *sim.Engine, r recording) string {
	t.Helper()
	var b body
	decodeJSON(t, []byte(r.body), &b)
	path := strings.Fields(r.head)[1]
	handle := prefill(t, p, path, b)
	if strings.Contains(r.name, "foreign") {
		handle = edited(t, handle, map[string]string{"remote_engine_id": `"no-such-engine"`})
	}
	raw, err := json.Marshal(b.with("kv_transfer_params", handle))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestShapesAreTheRecordedOnes(t *testing.T) {
	o := sim.Options{Model: "tiny", BlockSize: 32, NumBlocks: 256, MaxModelLen: 2048}
	p, d := pair(t, o)
	plain := start(t, o)
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			e, body := plain, r.body
			switch {
			case r.decodes:
				e, body = d, withFreshHandle(t, p, r)
			case strings.HasPrefix(r.name, "p-"):
				e = p
			case strings.HasPrefix(r.name, "d-"):
				e = d
			}
			if r.name == "d-get-metrics" {
				expectMetrics(t, r.answer, replay(t, e, r, body))
				return
			}
			expectSameShape(t, r, replay(t, e, r, body))
		})
	}
}

func expectSameShape(t *testing.T, r recording, got string) {
	t.Helper()
	wantHead, wantBody, _ := strings.Cut(r.answer, "\r\n\r\n")
	gotHead, gotBody, _ := strings.Cut(got, "\r\n\r\n")
	if want, got := headShape(wantHead), headShape(gotHead); want != got {
		t.Errorf("head\n%s\nwant\n%s", got, want)
	}
	switch {
	case strings.Contains(wantHead, "text/event-stream"):
		expectSameEvents(t, chunks(t, wantBody), chunks(t, gotBody))
	case strings.HasPrefix(r.name, "error-"), strings.HasPrefix(wantBody, `{"detail"`):
		if gotBody != wantBody {
			t.Errorf("body\n%s\nwant\n%s", gotBody, wantBody)
		}
	case wantBody == "":
		if gotBody != "" {
			t.Errorf("body %q, want none", gotBody)
		}
	default:
		if want, got := shape(t, wantBody), shape(t, gotBody); want != got {
			t.Errorf("body\n%s\nwant\n%s\n(%s)", got, want, gotBody)
		}
	}
}

// headShape is the status line and the header, values that must differ left out.
func headShape(head string) string {
	var lines []string
	for line := range strings.SplitSeq(head, "\r\n") {
		name, _, _ := strings.Cut(line, ":")
		if name == "date" || name == "content-length" {
			line = name
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// chunks are the chunks of a chunked body, up to the one that ends it.
func chunks(t *testing.T, body string) []string {
	t.Helper()
	var all []string
	for {
		var size int
		line, rest, found := strings.Cut(body, "\r\n")
		if _, err := fmt.Sscanf(line, "%x", &size); err != nil || !found || len(rest) < size+2 {
			t.Fatalf("no chunk: %.80q", body)
		}
		if size == 0 {
			if rest != "\r\n" {
				t.Fatalf("after the last chunk: %q", rest)
			}
			return all
		}
		all = append(all, rest[:size])
		body = rest[size+2:]
	}
}

// expectSameEvents compares the kinds of events in their order: one chunk an
// event, and no kind that the recording has not. How many tokens come may differ.
func expectSameEvents(t *testing.T, want, got []string) {
	t.Helper()
	wantKinds, gotKinds := eventKinds(t, want), eventKinds(t, got)
	at := 0
	for _, kind := range gotKinds {
		next := slices.Index(wantKinds[at:], kind)
		if next < 0 {
			t.Fatalf("event\n%s\nis not among the recorded\n%s", kind, strings.Join(wantKinds[at:], "\n"))
		}
		at += next + 1
	}
	end := func(kinds []string) []string { return kinds[max(0, len(kinds)-2):] }
	if gotKinds[0] != wantKinds[0] && len(gotKinds) > 2 || !slices.Equal(end(gotKinds), end(wantKinds)) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(gotKinds, "\n"), strings.Join(wantKinds, "\n"))
	}
}

// eventKinds are the shapes of the events; a run of the same one counts once.
func eventKinds(t *testing.T, chunks []string) []string {
	t.Helper()
	var kinds []string
	for _, c := range chunks {
		payload, ok := strings.CutPrefix(c, "data: ")
		if !ok || !strings.HasSuffix(payload, "\n\n") || strings.Count(payload, "\n") != 2 {
			t.Fatalf("chunk is no event: %q", c)
		}
		kind := strings.TrimSpace(payload)
		if kind != "[DONE]" && !strings.HasPrefix(kind, `{"error"`) {
			kind = shape(t, kind)
		}
		if len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// shape is the members of a JSON text in their order, with their types.
func shape(t *testing.T, text string) string {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(text))
	in.UseNumber()
	s := shapeOf(t, in, "")
	if in.More() {
		t.Fatalf("more than one JSON value: %q", text)
	}
	return s
}

func shapeOf(t *testing.T, in *json.Decoder, name string) string {
	t.Helper()
	token, err := in.Token()
	if err != nil {
		t.Fatalf("no JSON: %v", err)
	}
	switch v := token.(type) {
	case json.Delim:
		if v == '[' {
			return shapeOfList(t, in, name)
		}
		return shapeOfObject(t, in, name)
	case string:
		return "s"
	case json.Number:
		return "n"
	case bool:
		return "b"
	}
	return "null"
}

func shapeOfList(t *testing.T, in *json.Decoder, name string) string {
	t.Helper()
	var kinds []string
	for in.More() {
		if kind := shapeOf(t, in, name); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	closing(t, in)
	if name == "bytes" {
		return "[bytes]" // a token may have none
	}
	return "[" + strings.Join(kinds, "|") + "]"
}

// shapeOfObject lists the members; where the names are tokens, they are not part
// of the shape.
func shapeOfObject(t *testing.T, in *json.Decoder, name string) string {
	t.Helper()
	var members []string
	for in.More() {
		token, err := in.Token()
		if err != nil {
			t.Fatalf("no JSON: %v", err)
		}
		member := token.(string)
		inner := shapeOf(t, in, member)
		if name == "prompt_logprobs" || name == "top_logprobs" && inner == "n" && member != "logprob" {
			member = "*"
		}
		if kind := member + ":" + inner; member != "*" || !slices.Contains(members, kind) {
			members = append(members, kind)
		}
	}
	closing(t, in)
	return "{" + strings.Join(members, ",") + "}"
}

func closing(t *testing.T, in *json.Decoder) {
	t.Helper()
	if _, err := in.Token(); err != nil {
		t.Fatalf("no JSON: %v", err)
	}
}

// expectMetrics: each family that the engine has is vLLM's, by type, labels and
// bucket edges, and the ones that others read are there.
func expectMetrics(t *testing.T, recorded, got string) {
	t.Helper()
	_, wantBody, _ := strings.Cut(recorded, "\r\n\r\n")
	gotHead, gotBody, _ := strings.Cut(got, "\r\n\r\n")
	if !strings.Contains(gotHead, "content-type: text/plain; version=1.0.0; charset=utf-8\r\n") {
		t.Errorf("head %q", gotHead)
	}
	want, have := metricShapes(wantBody), metricShapes(gotBody)
	for line := range have {
		if !want[line] && !strings.HasPrefix(line, "vllm:cache_config_info") {
			t.Errorf("not vLLM's: %s", line)
		}
	}
	for _, name := range []string{
		"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total", "generation_tokens_total",
		"external_prefix_cache_hits_total", "external_prefix_cache_queries_total", "nixl_xfer_time_seconds_count",
		"nixl_bytes_transferred_sum", "nixl_num_failed_transfers_total", "nixl_num_failed_notifications_total",
		"nixl_num_kv_expired_reqs_total", "time_to_first_token_seconds_count", "e2e_request_latency_seconds_sum",
	} {
		if !have["vllm:"+name+`{engine="0",model_name="tiny"}`] {
			t.Errorf("missing: vllm:%s", name)
		}
	}
	for _, sample := range []string{
		`prompt_tokens_by_source_total{engine="0",model_name="tiny",source="external_kv_transfer"}`,
		`request_success_total{engine="0",finished_reason="length",model_name="tiny"}`,
		`num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"}`,
	} {
		if !have["vllm:"+sample] {
			t.Errorf("missing: vllm:%s", sample)
		}
	}
}

// metricShapes are the samples without their values, and the TYPE lines.
func metricShapes(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "# TYPE ") {
			all[line] = true
		} else if at := strings.LastIndexByte(line, ' '); at > 0 && !strings.HasPrefix(line, "#") {
			all[line[:at]] = true
		}
	}
	return all
}

func TestEachEventIsOneWrite(t *testing.T) {
	e := start(t, sim.Options{TokenLatency: 20 * time.Millisecond})
	c := send(t, e, completionsPath, textBody.with("stream", true).with("max_tokens", 4))
	b := make([]byte, 64<<10)
	var reads []string
	for !bytes.Contains([]byte(strings.Join(reads, "")), []byte("[DONE]")) {
		if err := c.nc.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.nc.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		reads = append(reads, string(b[:n]))
	}
	for _, r := range reads[1:3] { // the head and the first event may meet
		if strings.Count(r, "data: ") != 1 || !strings.HasSuffix(r, "\n\n\r\n") {
			t.Errorf("read %q, want one whole event", r)
		}
	}
}

func TestIDs(t *testing.T) {
	p, _ := pair(t, sim.Options{})
	for _, tc := range []struct{ path, header, inBody, id, internal string }{
		{"/v1/chat/completions", "rid-77", "", "chatcmpl-rid-77", "chatcmpl-rid-77-"},
		{completionsPath, "rid-77", "", "cmpl-rid-77", "cmpl-rid-77-0-"},
		{completionsPath, "rid-77", "other", "cmpl-rid-77", "cmpl-rid-77-0-"},
		{completionsPath, "", "other", "cmpl-other", "cmpl-other-0-"},
	} {
		b := textBody
		if tc.path != completionsPath {
			b = chatBody
		}
		if tc.inBody != "" {
			b = b.with("request_id", tc.inBody)
		}
		var headers []string
		if tc.header != "" {
			headers = []string{"X-Request-Id", tc.header}
		}
		_, answer := post(t, p.URL()+tc.path, prefillBody(b), headers...)
		var got struct {
			ID     string
			Handle struct {
				Request string `json:"remote_request_id"`
			} `json:"kv_transfer_params"`
		}
		decodeJSON(t, answer, &got)
		suffix, ok := strings.CutPrefix(got.Handle.Request, tc.internal)
		if got.ID != tc.id || !ok || len(suffix) != 8 {
			t.Errorf("%s %q %q: id %s, internal %s", tc.path, tc.header, tc.inBody, got.ID, got.Handle.Request)
		}
	}
}

func TestKeepAliveAndIdleClose(t *testing.T) {
	e := start(t, sim.Options{KeepAlive: 50 * time.Millisecond})
	c := send(t, e, completionsPath, textBody)
	in := bufio.NewReader(c.nc)
	for i := range 2 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || resp.Header.Get("Connection") != "" {
			t.Fatalf("answer %d: %d, %v, %v", i, resp.StatusCode, resp.Header, err)
		}
		if i == 0 {
			if _, err := io.WriteString(c.nc, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("idle connection: %v, want EOF", err)
	}
	if took := time.Since(begin); took < 40*time.Millisecond || took > 4*time.Second {
		t.Errorf("closed after %v, want about 50ms", took)
	}
}
