package proxy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/netio/tlsconf/tlstest"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// The row T43 of the fault matrix: routes that one engine answers alone. tools/faults names the tests of
// the row.

// relayedCalls are requests of relayed routes, by path. None of their answers is streamed.
func relayedCalls(t *testing.T) map[string][]string {
	upload, contentType := audioForm(t, true, "model", "sim")
	return map[string][]string{
		"/v1/embeddings":           {`{"model":"sim","input":["hello"]}`},
		"/v1/rerank":               {`{"model":"sim","query":"a","documents":["b"]}`},
		"/tokenize":                {`{"model":"sim","prompt":"hello"}`},
		"/v1/audio/transcriptions": {upload, "Content-Type", contentType},
	}
}

func (r *rig) relayedCount(route, outcome string) float64 {
	r.t.Helper()
	return r.metric(fmt.Sprintf(`xpyd_relayed_requests_total{outcome=%q,route=%q}`, outcome, route))
}

// A whole answer that is cut is none: 502 as an error object, with its request id, counted.
func TestRelayedAnswerCutAtEachByte(t *testing.T) {
	together(t)
	for _, version := range []uint16{0, tls.VersionTLS13} {
		for path, call := range relayedCalls(t) {
			t.Run(fmt.Sprintf("TLS %v%s", version > 0, path), func(t *testing.T) {
				r, s := severedRig(t, version, false, rigOptions{prefill: -1})
				whole := r.post(path, call[0], call[1:]...)
				size := int(s.passed.Load())
				if whole.status != 200 || size <= len(whole.body) {
					t.Fatalf("%d %s, %d bytes", whole.status, whole.body, size)
				}
				n := 0.0
				for at := 1; at < size; at += 1 + size/40 {
					s.plan.Store(&severed{at: at, reset: at%3 == 0, inRecord: at%2 == 0})
					a := r.post(path, call[0], call[1:]...)
					if a.err != nil || a.status != 502 || a.code() == "<nil>" || a.header.Get("X-Request-Id") == "" || a.header.Get("Content-Type") != "application/json" {
						t.Fatalf("cut at %d of %d: %d %v %v %s", at, size, a.status, a.err, a.header, a.body)
					}
					n++
				}
				if got := r.relayedCount(path, "error"); got != n {
					t.Errorf("%v errors counted, want %v", got, n)
				}
				s.plan.Store(nil)
				if a := r.post(path, call[0], call[1:]...); a.status != 200 || len(a.body) != len(whole.body) {
					t.Errorf("after all: %d %s", a.status, a.body)
				}
				r.expectNothingHeld()
			})
		}
	}
}

// A stream that is cut never ends cleanly, and what came of it is D's.
func TestRelayedStreamCutAtEachByte(t *testing.T) {
	together(t)
	for _, version := range []uint16{0, tls.VersionTLS13} {
		t.Run(fmt.Sprintf("TLS %v", version > 0), func(t *testing.T) {
			r, s := severedRig(t, version, false, rigOptions{prefill: -1})
			body, contentType := audioForm(t, true, "model", "sim", "stream", "true")
			ask := func() answer {
				return r.post("/v1/audio/transcriptions", body, "Content-Type", contentType, "X-Request-Id", "cut")
			}
			whole := ask()
			size := int(s.passed.Load())
			if whole.status != 200 || whole.err != nil || !strings.HasSuffix(whole.body, "data: [DONE]\n\n") {
				t.Fatalf("%d %v %s", whole.status, whole.err, whole.body)
			}
			broken, failed := 0.0, 0.0
			for at := 1; at < size; at += 1 + size/100 {
				s.plan.Store(&severed{at: at, reset: at%3 == 0, inRecord: at%2 == 0})
				switch a := ask(); {
				case a.status == 502 && a.err == nil && a.code() != "<nil>":
					failed++
				case a.status == 200 && a.err != nil && a.body != "" && strings.HasPrefix(stable(whole.body), stable(a.body[:strings.LastIndex(a.body, "\n\n")+1])):
					broken++
				default:
					t.Fatalf("cut at %d of %d: %d %v %v %s", at, size, a.status, a.err, a.header, a.body)
				}
			}
			if broken == 0 || failed == 0 || r.relayedCount("/v1/audio/transcriptions", "broken") != broken || r.relayedCount("/v1/audio/transcriptions", "error") != failed {
				t.Errorf("%v broke off, %v failed\n%s", broken, failed, r.metricsText())
			}
			r.expectNothingHeld()
		})
	}
}

// An engine that freezes before its answer is 504 on time, and one that freezes in a stream ends it.
func TestRelayedEngineThatFreezes(t *testing.T) {
	together(t)
	r := newRig(t, rigOptions{prefill: -1, config: func(c *proxy.Config) {
		c.Timeouts.FirstEvent, c.Timeouts.StreamIdle = 200*time.Millisecond, 200*time.Millisecond
	}, router: func(c *router.Config) { c.Health.EjectAfter = 0 }})
	r.server.StopChecks()
	r.decode[0].Freeze()
	calls := relayedCalls(t)
	delete(calls, "/tokenize") // may take 30 s
	for path, call := range calls {
		a := r.post(path, call[0], call[1:]...)
		if a.status != 504 || a.code() != "decode_timeout" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d %v %s", path, a.status, a.err, a.body)
		}
		if n := r.relayedCount(path, "error"); n != 1 {
			t.Errorf("%s: %v errors counted", path, n)
		}
	}
	r.decode[0].Thaw()
	for path, call := range calls {
		r.await(path+" answered after the thaw", func() bool { return r.post(path, call[0], call[1:]...).status == 200 })
	}
	r.expectNothingHeld()
}

// An engine that freezes behind the head of its answer and is taken down by health checks loses the request
// to another engine, while the client has nothing of the answer. A route that is sent once is told.
func TestRelayedEngineThatGoesDownBehindItsHead(t *testing.T) {
	together(t)
	upload, form := audioForm(t, true, "model", "sim", "stream", "true")
	for _, tc := range []struct {
		path, body, contentType, answer string
		status                          int
	}{
		{"/v1/audio/transcriptions", upload, form, "text/event-stream", 200},
		{"/v1/embeddings", `{"model":"sim"}`, "application/json", "application/json", 200},
		{"/tokenize", `{"model":"sim"}`, "application/json", "application/json", 200},
		{"/v2/embed", `{"model":"sim"}`, "application/json", "text/event-stream", 502},
	} {
		t.Run(tc.path, func(t *testing.T) {
			frozen := make(chan struct{}, 1)
			engine := func(freeze bool) *stub {
				return newStub(t, func(w http.ResponseWriter, q *http.Request) {
					_, _ = io.Copy(io.Discard, q.Body)
					w.Header().Set("Content-Type", tc.answer)
					w.WriteHeader(200)
					_ = http.NewResponseController(w).Flush()
					if freeze {
						frozen <- struct{}{}
						<-q.Context().Done()
						return
					}
					_, _ = io.WriteString(w, "data: {}\n\n")
				})
			}
			bad, good := engine(true), engine(false)
			r := newRig(t, rigOptions{prefill: -1, decode: 2, config: func(c *proxy.Config) { c.Routes.Pass = []string{"/v2/embed"} },
				router: func(c *router.Config) { c.Decode = router.MustEntries(bad.server.URL, good.server.URL) }})
			got := make(chan answer, 1)
			met := func() bool { return len(frozen) == 1 }
			r.until(met, func(int) {
				if met() {
					return
				}
				go func() { got <- r.post(tc.path, tc.body, "Content-Type", tc.contentType) }()
				r.await("answered, or frozen", func() bool { return len(got) == 1 || met() })
				if !met() {
					<-got
				}
			})
			for range 20 { // it has most likely read the head by then
				r.metricsText()
			}
			r.server.FailChecks(bad.server.URL)
			if a := r.soon(got); a.err != nil || a.status != tc.status {
				t.Errorf("%d %v %s", a.status, a.err, a.body)
			}
			r.expectNothingHeld()
		})
	}
}

// Without an engine that is up the answer is 503 at once, with Retry-After.
func TestRelayedPoolsThatAreDown(t *testing.T) {
	together(t)
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) {
		c.Health.Interval, c.Health.SuspectInterval = 50*time.Millisecond, 50*time.Millisecond
	}})
	r.decode[0].Kill()
	r.await("down", func() bool { return r.metric("xpyd_backend_up") == 0 })
	for path, call := range relayedCalls(t) {
		a := r.post(path, call[0], call[1:]...)
		if a.status != 503 || a.code() != "decode_unavailable" || a.header.Get("Retry-After") == "" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d %v %s", path, a.status, a.header, a.body)
		}
		if n := r.relayedCount(path, "error"); n != 1 {
			t.Errorf("%s: %v errors counted", path, n)
		}
	}
}

// An upload that breaks off reaches no engine.
func TestRelayedUploadThatBreaksOff(t *testing.T) {
	together(t)
	for how, leave := range leaving() {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: -1})
			before := len(r.decode[0].Requests())
			conn := r.dialRaw()
			body, contentType := audioForm(t, true, "model", "sim")
			_, _ = fmt.Fprintf(conn, "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body[:len(body)/2])
			r.await("reading it", func() bool { return r.buffered() > 0 })
			leave(conn)
			r.await("given up", func() bool {
				return r.relayedCount("/v1/audio/transcriptions", "client_gone") == 1 && r.buffered() == 0
			})
			if n := len(r.decode[0].Requests()); n != before {
				t.Errorf("the engine got %d requests", n-before)
			}
			r.expectNothingHeld()
		})
	}
}

// A request that ends in its head or its body without close_notify, or with it, reaches no engine, and is
// told of no success.
func TestRequestsThatBreakOffOverTLS(t *testing.T) {
	together(t)
	ca := tlstest.NewCA(t)
	r := newRig(t, secured(t, ca, rigOptions{}))
	request := raw(forms(strings.Repeat("word ", 4000), 9)[1], "half")
	head := strings.Index(request, "\r\n\r\n") + 4
	for _, version := range tlsVersions {
		for how, leave := range map[string]func(*tls.Conn, *net.TCPConn){
			"close_notify": func(c *tls.Conn, _ *net.TCPConn) { _ = c.CloseWrite() },
			"half-close":   func(_ *tls.Conn, c *net.TCPConn) { _ = c.CloseWrite() },
			"reset":        func(_ *tls.Conn, c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		} {
			for _, at := range []int{1, head / 2, head - 1, head, head + 1, len(request) / 2, len(request) - 1} {
				conn, under := r.dialTLS(ca, version)
				_, _ = io.WriteString(conn, request[:at])
				leave(conn, under)
				_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
				got, err := io.ReadAll(conn)
				if strings.Contains(string(got), " 200 ") || err != nil && strings.Contains(err.Error(), "i/o timeout") {
					t.Errorf("%s, %s at %d: %v, %q", tls.VersionName(version), how, at, err, got)
				}
			}
		}
	}
	for _, e := range [][]sim.Record{legs(r.prefill, "prefill"), legs(r.decode, "decode")} {
		if len(e) > 0 {
			t.Errorf("an engine was asked: %+v", e[0])
		}
	}
	r.await("all given up", func() bool { return r.buffered() == 0 && r.metric("xpyd_in_flight") == 0 })
	r.expectNothingHeld()
}
