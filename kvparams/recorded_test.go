package kvparams

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// recordedBodies returns the bodies of recorded answers without their framing, by release and name.
func recordedBodies(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../sim/testdata/vllm-*/" + pattern + ".http")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d recordings of %s, %v", len(paths), pattern, err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, answer, _ := bytes.Cut(raw, []byte("\n"+strings.Repeat("=", 78)+"\n"))
		head, body, ok := bytes.Cut(answer, []byte("\r\n\r\n"))
		if !ok {
			t.Fatalf("%s is no recording", path)
		}
		if bytes.Contains(head, []byte("transfer-encoding: chunked")) {
			body = joinChunks(t, body)
		}
		all[strings.TrimPrefix(strings.TrimSuffix(path, ".http"), "../sim/testdata/vllm-")] = body
	}
	return all
}

func joinChunks(t *testing.T, chunked []byte) (body []byte) {
	t.Helper()
	for {
		size, rest, _ := bytes.Cut(chunked, []byte("\r\n"))
		n, err := strconv.ParseInt(string(size), 16, 64)
		if err != nil || int64(len(rest)) < n+2 {
			t.Fatalf("chunk %q: %v", size, err)
		}
		if n == 0 {
			return body
		}
		body, chunked = append(body, rest[:n]...), rest[n+2:]
	}
}

func TestHandlesOfEveryRecordedRelease(t *testing.T) {
	for _, pattern := range []string{"p-chat", "p-completions"} {
		for name, body := range recordedBodies(t, pattern) {
			var want struct {
				Handle json.RawMessage `json:"kv_transfer_params"`
			}
			if err := json.Unmarshal(body, &want); err != nil {
				t.Fatal(err)
			}
			if a, err := (nixl{}).ParseAnswer(body); err != nil || a.Handle.None() || string(a.Handle.Raw) != string(want.Handle) {
				t.Errorf("%s: handle %s, want %s, error %v", name, a.Handle.Raw, want.Handle, err)
			}
		}
	}
}

// Each stream is whole at its end and not before, unless it tells of an error, and no event that a
// client gets has the address of an engine. From 0.33 on a prefill engine's stream has its handle.
func TestStreamsOfEveryRecordedRelease(t *testing.T) {
	handles := 0
	for name, stream := range recordedBodies(t, "*-stream") {
		api := Completions
		for a, word := range map[API]string{Chat: "-chat", Messages: "-messages", Responses: "-responses"} {
			if strings.Contains(name, word) {
				api = a
			}
		}
		if strings.Contains(name, "/error-") {
			continue // refused before it became a stream
		}
		events := cutEvents(stream)
		finished, failed := 0, false
		for i, ev := range events {
			e := api.Classify(ev)
			if e.Handle() {
				handles++
			}
			if hidden := e.HideTransfers(ev); bytes.Contains(hidden, []byte("remote_host")) {
				t.Errorf("%s: event %d tells the address: %s", name, i, hidden)
			}
			if last := i == len(events)-1; e.Malformed || (e.Kind == EventDone) != last {
				t.Errorf("%s: event %d of %d is %+v", name, i, len(events), e)
			}
			finished += e.Finished
			failed = failed || e.Kind == EventError
		}
		foreign := strings.Contains(name, "foreign")
		if tells := !strings.HasPrefix(name, "0.28."); failed != (foreign && tells) || (finished > 0) == foreign {
			t.Errorf("%s: %d choices finished, failed %v", name, finished, failed)
		}
	}
	if handles != 2 {
		t.Errorf("%d events with a handle, want those of the two prefill streams of 0.33", handles)
	}
}
