package desk

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// watched is a stream on a real socket. next makes the events of a tick.
func watched(t *testing.T, change func(s *Stream)) (*Stream, string, *atomic.Int64) {
	t.Helper()
	made := &atomic.Int64{}
	s := &Stream{
		First: func() []byte { return []byte("event: first\ndata: {}\n\n") },
		Next:  func(int) []byte { return fmt.Appendf(nil, "event: next\ndata: %d\n\n", made.Add(1)) },
		Over:  func() bool { return false }, Every: time.Millisecond, Patience: 10 * time.Second, Viewers: 3,
	}
	if change != nil {
		change(s)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL, made
}

func (s *Stream) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.viewers)
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s after 20 s", what)
		}
	}
}

func view(t *testing.T, url string) *http.Response {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// All viewers get the same events, made once. When the last one leaves, none are made any more.
func TestOneProducerForAllViewers(t *testing.T) {
	s, url, made := watched(t, nil)
	if made.Load() != 0 {
		t.Error("events are made before anybody looks")
	}
	a, b := view(t, url), view(t, url)
	seen := func(resp *http.Response) (events []string) {
		in := bufio.NewReader(resp.Body)
		for range 40 {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, line)
		}
		return events
	}
	for _, resp := range []*http.Response{a, b} {
		if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("content type %q", got)
		}
		if lines := seen(resp); lines[0] != "event: first\n" || lines[3] != "event: next\n" || lines[2] != "\n" {
			t.Errorf("events %q", lines[:6])
		}
	}
	if n := s.watching(); n != 2 {
		t.Errorf("%d viewers, want 2", n)
	}
	_ = a.Body.Close()
	_ = b.Body.Close()
	await(t, "without viewers", func() bool { return s.watching() == 0 })
	before := made.Load()
	time.Sleep(20 * time.Millisecond) // many ticks; one may have been under way
	if n := made.Load(); n > before+1 {
		t.Errorf("%d events made without a viewer", n-before)
	}
}

// A viewer that reads nothing is dropped. Another one goes on meanwhile.
func TestViewerThatReadsNothingIsDropped(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 1<<20)
	s, url, _ := watched(t, func(s *Stream) {
		s.Next = func(int) []byte { return large }
		s.Every, s.Patience = 50*time.Millisecond, 3*time.Second
	})
	reader := view(t, url)
	go func() { _, _ = io.Copy(io.Discard, reader.Body) }()
	view(t, url)
	await(t, "down to the viewer that reads", func() bool { return s.watching() == 1 })
}

// More viewers than allowed are told to come later.
func TestTooManyViewers(t *testing.T) {
	_, url, _ := watched(t, func(s *Stream) { s.Viewers = 1 })
	view(t, url)
	if resp := view(t, url); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

// When another process has the port, the streams end cleanly.
func TestStreamEndsWhenItIsOver(t *testing.T) {
	over := &atomic.Bool{}
	_, url, _ := watched(t, func(s *Stream) { s.Over = over.Load })
	resp := view(t, url)
	over.Store(true)
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
}

// The page and its files load nothing from elsewhere, and run no code that is not a file.
func TestFiles(t *testing.T) {
	for _, tc := range []struct{ path, kind string }{
		{"main.js", "text/javascript; charset=utf-8"}, {"page.css", "text/css; charset=utf-8"}, {"icon.svg", "image/svg+xml"}, {"uplot/LICENSE", "text/plain; charset=utf-8"},
	} {
		w := httptest.NewRecorder()
		Files("/assets/").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/assets/"+tc.path, nil))
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != tc.kind || w.Body.Len() == 0 {
			t.Errorf("%s: status %d, %q, %d bytes", tc.path, w.Code, got, w.Body.Len())
		}
		if got := w.Header().Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: policy %q", tc.path, got)
		}
	}
}

// Each file that the page or one of its scripts names is part of the program.
func TestFilesAreThere(t *testing.T) {
	named := regexp.MustCompile(`(?:src|href)="assets/([^"]+)"|from '\./([^']+)'`)
	found := 0
	err := fs.WalkDir(embedded, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/uplot/") {
			return err
		}
		text, err := embedded.ReadFile(path)
		if err != nil {
			return err
		}
		if lines := bytes.Count(text, []byte("\n")); lines > 400 {
			t.Errorf("%s has %d lines, more than 400", path, lines)
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			found++
			if _, err := fs.Stat(embedded, "page/"+string(m[1])+string(m[2])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("%d names found, error %v", found, err)
	}
}
