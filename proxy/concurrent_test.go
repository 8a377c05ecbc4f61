package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/sim"
)

// A full prefill pool is waited for in the queue, also where the legs start together.
func TestConcurrentPrefillWaitsInTheQueue(t *testing.T) {
	together(t)
	for _, name := range []string{"mooncake", "sglang"} {
		t.Run(name, func(t *testing.T) {
			d, _ := kvparams.Lookup(name)
			b := newBarrier(sim.PhasePrefillStart, 0)
			r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) {
				if o.Role == sim.RolePrefill {
					o.Hook = b.hook
				}
			}, router: func(c *router.Config) { c.PrefillMaxInFlight, c.Queue.Wait = 1, time.Minute }})
			t.Cleanup(b.open)
			c := forms(prompt, 2)[0]
			first := r.start(c, "X-Request-Id", "first")
			r.reached(b)
			second := r.start(c, "X-Request-Id", "second")
			r.await("queued", func() bool { return r.metric(`xpyd_queued{role="prefill"}`) == 1 })
			b.open()
			for _, got := range []<-chan answer{first, second} {
				a := <-got
				r.expectWhole(c, a)
				if path := a.header.Get("X-Xpyd-Path"); path != "disaggregated" {
					t.Errorf("path %s, %s", path, a.header.Get("X-Xpyd-Reason"))
				}
			}
		})
	}
}

// pd.mode never and a threshold need no price, so they are for legs that start together too. auto has no price for these.
func TestConcurrentLegsObeyTheMode(t *testing.T) {
	together(t)
	for _, name := range []string{"mooncake", "offloading-p2p"} {
		for _, tc := range []struct {
			pd           router.PD
			path, reason string
		}{
			{router.PD{Mode: router.PDNever}, "decode_only", "pd_never"},
			{router.PD{Mode: router.PDAlways, ThresholdTokens: 1000}, "decode_only", "short_prompt"},
			{router.PD{Mode: router.PDAlways, ThresholdTokens: 1}, "disaggregated", "none"},
			{router.PD{Mode: router.PDAuto, StallWeight: 1}, "disaggregated", "none"},
		} {
			t.Run(fmt.Sprint(name, " ", tc.pd.Mode, " ", tc.pd.ThresholdTokens), func(t *testing.T) {
				d, _ := kvparams.Lookup(name)
				r := newRig(t, rigOptions{dialect: d, router: func(c *router.Config) { c.PD = tc.pd }})
				for _, c := range forms(prompt, 2) {
					a := r.call(c)
					r.expectWhole(c, a)
					if path, reason := a.header.Get("X-Xpyd-Path"), a.header.Get("X-Xpyd-Reason"); path != tc.path || reason != tc.reason {
						t.Errorf("%s: %s, %s", c.name(), path, reason)
					}
				}
			})
		}
	}
}

// While decode serves a request alone, its body is not held, whatever the connector.
func TestBodyOfADecodeAloneIsLetGo(t *testing.T) {
	together(t)
	for _, name := range []string{"nixl", "mooncake"} {
		t.Run(name, func(t *testing.T) {
			dialect, _ := kvparams.Lookup(name)
			release := make(chan struct{})
			d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}`+"\n\n")
				_ = http.NewResponseController(w).Flush()
				<-release
				_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"b","finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
			})
			r := newRig(t, rigOptions{dialect: dialect, router: func(c *router.Config) { d.asDecode(c) }})
			end := sync.OnceFunc(func() { close(release) })
			t.Cleanup(end)
			got := make(chan answer, 1)
			go func() {
				got <- r.post("/v1/completions", `{"model":"sim","stream":true,"prompt_logprobs":1,"prompt":"`+strings.Repeat("a ", 100_000)+`"}`)
			}()
			r.await("streaming without its body", func() bool {
				return r.metric(`xpyd_in_flight{backend="`+d.server.URL) == 1 && r.metric("xpyd_request_bytes_buffered") == 0
			})
			end()
			if a := r.soon(got); a.status != 200 || a.header.Get("X-Xpyd-Path") != "decode_only" {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

// A decode engine that goes down while a prefill engine is waited for is swapped before the prefill begins.
// While another one is waited for, the prefill engine computes nothing and is free for others.
func TestConcurrentPrefillWaitsForADecodeThatIsUp(t *testing.T) {
	prefilled, end := make(chan struct{}), make(chan struct{})
	var asked, decodes atomic.Int32
	goOn, finish := sync.OnceFunc(func() { close(prefilled) }), sync.OnceFunc(func() { close(end) })
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		asked.Add(1)
		<-prefilled
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"text":"a","finish_reason":"length"}]}`)
	})
	begun := make(chan string, 2)
	decode := func() *stub {
		return newStub(t, func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			n := decodes.Add(1)
			begun <- "http://" + q.Host
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			<-end
			for asked.Load() < n && q.Context().Err() == nil { // a decode engine waits for the KV of its prefill
				time.Sleep(time.Millisecond)
			}
			_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"b","finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		})
	}
	one, other := decode(), decode()
	r := newRig(t, rigOptions{dialect: newPushDialect(), decode: 2, router: func(c *router.Config) {
		inTurn(c)
		p.asPrefill(c)
		c.Decode = router.MustEntries(one.server.URL, other.server.URL)
		c.PrefillMaxInFlight, c.DecodeMaxInFlight, c.Queue.Wait = 1, 1, time.Minute
	}})
	t.Cleanup(goOn)
	t.Cleanup(finish)
	c := forms(prompt, 2)[1]
	got := []<-chan answer{r.start(c)}
	doomed := one
	if <-begun == one.server.URL {
		doomed = other
	}
	got = append(got, r.start(c))
	r.await("queued for prefill", func() bool { return r.metric(`xpyd_queued{role="prefill"}`) == 1 })
	r.server.FailChecks(doomed.server.URL)
	goOn()
	r.await("queued for decode", func() bool { return r.metric(`xpyd_queued{role="decode"}`) == 1 })
	if n := r.metric(`xpyd_in_flight{backend="` + p.server.URL); n != 0 || asked.Load() != 1 {
		t.Errorf("the prefill engine was asked %d times and has %v in flight, with no decode engine to be had", asked.Load(), n)
	}
	finish()
	for _, got := range got {
		if a := r.soon(got); a.status != 200 || a.text() != "ab" {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d prefills of 2 requests", n)
	}
}

// A decode engine that goes down while a prefill engine is waited for is swapped for one that is free, and the
// request keeps the prefill engine that it has waited for: those behind it in the queue come after it.
func TestConcurrentPrefillIsKeptWhereAnotherDecodeIsFree(t *testing.T) {
	prefilled, end := make(chan struct{}), make(chan struct{})
	goOn, finish := sync.OnceFunc(func() { close(prefilled) }), sync.OnceFunc(func() { close(end) })
	asked := make(chan string, 3)
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		asked <- q.Header.Get("X-Request-Id")
		<-prefilled
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"text":"a","finish_reason":"length"}]}`)
	})
	var decodes []string
	for range 4 {
		decodes = append(decodes, newStub(t, func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			<-end
			_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"b","finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		}).server.URL)
	}
	r := newRig(t, rigOptions{dialect: newPushDialect(), decode: 4, router: func(c *router.Config) {
		inTurn(c)
		p.asPrefill(c)
		c.Decode = router.MustEntries(decodes...)
		c.PrefillMaxInFlight, c.DecodeMaxInFlight, c.Queue.Wait = 1, 1, time.Minute
	}})
	t.Cleanup(goOn)
	t.Cleanup(finish)
	busy := func(url string) bool { return r.metric(`xpyd_in_flight{backend="`+url) == 1 }
	var got []<-chan answer
	taken := map[string]bool{}
	doomed := ""
	for i, id := range []string{"first", "second", "third"} {
		got = append(got, r.start(forms(prompt, 2)[1], "X-Request-Id", id))
		r.await(id+" has a decode engine", func() bool {
			for _, url := range decodes {
				if !taken[url] && busy(url) {
					taken[url] = true
					if id == "second" {
						doomed = url
					}
					return true
				}
			}
			return false
		})
		r.await(id+" stands in its place", func() bool { return r.metric(`xpyd_queued{role="prefill"}`) == float64(i) })
	}
	r.server.FailChecks(doomed)
	goOn()
	for _, want := range []string{"first", "second", "third"} {
		select {
		case id := <-asked:
			if !strings.HasPrefix(id, want) {
				t.Errorf("the prefill engine is asked for %s, want %s", id, want)
			}
		case <-time.After(patience):
			t.Fatalf("the prefill engine is not asked for %s", want)
		}
	}
	finish()
	for _, got := range got {
		if a := r.soon(got); a.status != 200 || a.text() != "ab" {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// Once D has answered, what happens to a P that began with it no longer matters to the client.
func TestConcurrentPrefillEndsAfterTheFirstToken(t *testing.T) {
	together(t)
	for _, how := range []string{"breaks off", "answers 500", "goes down", "hangs"} {
		t.Run(how, func(t *testing.T) {
			end, goOn := make(chan struct{}), make(chan struct{})
			p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				select {
				case <-end:
				case <-q.Context().Done():
				}
				if how == "answers 500" {
					w.WriteHeader(500)
					return
				}
				panic(http.ErrAbortHandler)
			})
			const first, rest = `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}` + "\n\n",
				`data: {"choices":[{"index":0,"text":"b","finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
			d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, first)
				_ = http.NewResponseController(w).Flush()
				<-goOn
				_, _ = io.WriteString(w, rest)
			})
			r := newRig(t, rigOptions{dialect: newPushDialect(), router: func(c *router.Config) {
				p.asPrefill(c)
				d.asDecode(c)
			}})
			resp, err := r.client.Post(r.url+"/v1/completions", "application/json", strings.NewReader(forms(prompt, 2)[1].body()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			br := bufio.NewReader(resp.Body)
			if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(first, line) {
				t.Fatalf("%q, %v", line, err)
			}
			switch how {
			case "goes down":
				r.server.FailChecks(p.server.URL)
			case "hangs":
			default:
				close(end)
			}
			if how != "hangs" {
				r.await("prefill ended", func() bool { return r.metric(`xpyd_in_flight{backend="`+p.server.URL) == 0 })
			}
			close(goOn)
			body, err := io.ReadAll(br)
			if err != nil || !strings.HasSuffix(string(body), rest) {
				t.Errorf("%q, %v", body, err)
			}
			r.await("counted", func() bool { return r.metric("xpyd_requests_total{") == 1 })
			if n := r.metric(`xpyd_requests_total{api="completions",outcome="ok"`); n != 1 {
				t.Errorf("not counted as ok\n%s", r.logs)
			}
		})
	}
}

// A decode that is cut because its prefill has failed is no failure of its engine.
func TestConcurrentConnectorBlamesNoDecodeForPrefill(t *testing.T) {
	reached := make(chan struct{}, 1)
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		<-reached
		w.WriteHeader(500)
	})
	d := newStub(t, func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		reached <- struct{}{}
		<-q.Context().Done()
	})
	r := newRig(t, rigOptions{dialect: newPushDialect(), router: func(c *router.Config) {
		p.asPrefill(c)
		d.asDecode(c)
	}})
	if a := r.call(forms(prompt, 2)[0]); a.status < 500 {
		t.Errorf("%d %s, although no prefill succeeds", a.status, a.body)
	}
	legs := func(outcome string) float64 {
		return r.metric(`xpyd_leg_requests_total{backend="` + d.server.URL + `",leg="decode",outcome="` + outcome + `"`)
	}
	if cut, late := legs("no_verdict"), legs("timeout"); cut != 1 || late != 0 {
		t.Errorf("%v decode legs were cut, %v counted as timeouts; want 1 and 0\n%s", cut, late, r.logs)
	}
	if n := r.metric(`xpyd_leg_errors_total{code="decode_timeout"`); n != 0 {
		t.Errorf("%v decode timeouts", n)
	}
}

// What decode says of KV that came from prefill tells nothing: vLLM's Mooncake counts the whole prompt as cached.
func TestConcurrentCachedTokensArePrefills(t *testing.T) {
	const told = `"usage":{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%d}}`
	var r *rig
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"text":"a","finish_reason":"length"}],`+told+`}`, 16)
	})
	var answers atomic.Int32
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		n := float64(answers.Add(1))
		for q.Context().Err() == nil && r.metric(`xpyd_leg_requests_total{backend="`+p.server.URL+`",leg="prefill",outcome="ok"`) < n {
			time.Sleep(time.Millisecond) // for xpyd to have read what prefill has told
		}
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"choices":[{"index":0,"text":"a","finish_reason":"length"}],`+told+`}`, 40)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":0,"text":"a","finish_reason":"length"}]}`+"\n\n"+`data: {"choices":[],`+told+"}\n\ndata: [DONE]\n\n", 40)
	})
	dialect, _ := kvparams.Lookup("offloading-p2p") // its legs start together, and nothing is asked before them
	r = newRig(t, rigOptions{dialect: dialect, router: func(c *router.Config) {
		p.asPrefill(c)
		c.Decode = router.MustEntries(d.server.URL)
	}})
	for i, c := range forms(prompt, 1)[:2] {
		if c.stream {
			c.more = `,"stream_options":{"include_usage":true}`
		}
		a := r.call(c)
		if a.status != 200 || !strings.Contains(string(a.body), `"cached_tokens":16`) || strings.Contains(string(a.body), `"cached_tokens":40`) {
			t.Errorf("%s: %d %s", c.name(), a.status, a.body)
		}
		r.await("counted", func() bool { return r.metric(`xpyd_requests_total{`) == float64(i+1) })
		if n := r.metric("xpyd_prompt_tokens_cached_total"); n != float64(16*(i+1)) {
			t.Errorf("%s: %v of the prompts' tokens count as cached", c.name(), n)
		}
	}
}
