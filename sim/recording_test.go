package sim_test

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// recording is one exchange with a real vLLM, as scripts/real-vllm/record wrote it.
type recording struct {
	name    string
	head    string // of the request, without its Content-Length
	body    string
	answer  string // raw, framing included
	decodes bool   // its request carried a handle
}

// recordedVersions returns the folders of testdata by the version that they were recorded with.
func recordedVersions(t *testing.T) map[string]string {
	t.Helper()
	folders, err := filepath.Glob("testdata/vllm-*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("testdata: %d recorded versions, %v", len(folders), err)
	}
	versions := map[string]string{}
	for _, folder := range folders {
		versions[strings.TrimPrefix(filepath.Base(folder), "vllm-")] = folder
	}
	return versions
}

func recordings(t *testing.T, folder string) []recording {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.http"))
	if err != nil || len(files) < 60 {
		t.Fatalf("%s: %d recordings, %v", folder, len(files), err)
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
			body: body, answer: answer, decodes: strings.Contains(body, `"do_remote_prefill": true`),
		})
	}
	return all
}

// engines are the three engines that a version is recorded with.
type engines struct{ prefill, decode, plain *sim.Engine }

// replay sends to the sim what was sent to the real engine, and returns the raw answer.
func (es engines) replay(t *testing.T, r recording) string {
	t.Helper()
	switch {
	case r.decodes:
		return exchange(t, es.decode, r.head, es.withFreshHandle(t, r))
	case strings.HasPrefix(r.name, "p-"):
		return exchange(t, es.prefill, r.head, r.body)
	case strings.HasPrefix(r.name, "d-"):
		return exchange(t, es.decode, r.head, r.body)
	}
	return exchange(t, es.plain, r.head, r.body)
}

// withFreshHandle gives a recorded decode request a handle of the prefill engine in place of the
// recorded one. A foreign engine stays foreign.
func (es engines) withFreshHandle(t *testing.T, r recording) string {
	t.Helper()
	var b body
	decodeJSON(t, []byte(r.body), &b)
	handle := prefill(t, es.prefill, strings.Fields(r.head)[1], b)
	if strings.Contains(r.name, "foreign") {
		handle = edited(t, handle, map[string]string{"remote_engine_id": `"no-such-engine"`})
	}
	raw, err := json.Marshal(b.with("kv_transfer_params", handle))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// recordedRoutes returns the lines "METHOD /path" of the recorded openapi.txt.
func recordedRoutes(t *testing.T, folder string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(folder, "openapi.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for line := range strings.Lines(string(raw)) {
		if _, path, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(path, "/") {
			routes = append(routes, strings.TrimSpace(line))
		}
	}
	return routes
}

// routes returns those of the given routes that the sim has.
func (es engines) routes(t *testing.T, asked []string) []string {
	t.Helper()
	var had []string
	for _, route := range asked {
		answer := exchange(t, es.plain, route+" HTTP/1.1\r\nHost: x\r\nConnection: close", "{}")
		if !strings.HasPrefix(answer, "HTTP/1.1 404 ") {
			had = append(had, route)
		}
	}
	return had
}

// exchange sends one request and reads until the engine closes.
func exchange(t *testing.T, e *sim.Engine, head, body string) string {
	t.Helper()
	nc, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
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
