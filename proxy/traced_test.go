package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/metrics/trace"
	"xpyd/metrics/trace/tracetest"
	"xpyd/proxy"
	"xpyd/proxy/fault"
	"xpyd/router"
	"xpyd/sim"
)

const clientTrace = "0af7651916cd43dd8448eb211c80319c"

// traced has the options of a rig whose spans go to the collector.
func traced(c *tracetest.Collector, o rigOptions) rigOptions {
	o.config = then(o.config, func(cfg *proxy.Config) { cfg.Tracing = trace.Config{Endpoint: c.GRPC, Protocol: trace.GRPC, Sample: 1} })
	return o
}

// spansOf ends the rig's proxy, which sends all spans, and returns those of each request's trace.
func (r *rig) spansOf(c *tracetest.Collector) map[string][]tracetest.Span {
	r.t.Helper()
	r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
	r.client.CloseIdleConnections()
	if err := r.server.Shutdown(); err != nil {
		r.t.Fatal(err)
	}
	traces, found := map[string][]tracetest.Span{}, map[string][]tracetest.Span{}
	for _, s := range c.Spans() {
		traces[s.Trace] = append(traces[s.Trace], s)
	}
	for _, spans := range traces {
		for _, s := range spans {
			if id, ok := s.Attributes["xpyd.request_id"].(string); ok {
				if found[id] != nil {
					r.t.Errorf("%s has two server spans", id)
				}
				found[id] = spans
			}
		}
	}
	return found
}

// names are the names of spans, in the order of their beginnings.
func names(spans []tracetest.Span) string {
	var all []string
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return strings.Join(all, ", ")
}

func eventNames(s tracetest.Span) (all []string) {
	for _, e := range s.Events {
		all = append(all, e.Name)
	}
	return all
}

// Each completion is one trace: a server span, below it a span for each leg. Engines get the place of
// their leg's span, and no prompt and no answer gets into a trace.
func TestTraceOfACompletion(t *testing.T) {
	c := tracetest.Start(t)
	r := newRig(t, traced(c, rigOptions{config: func(cfg *proxy.Config) { cfg.APIKeys = []string{"sesame"} }}))
	parents := map[string][2]string{} // of the legs, as the engines got them
	for i, form := range forms(prompt, 3) {
		id := fmt.Sprint("form", i)
		a := r.call(form, "X-Request-Id", id, "Authorization", "Bearer sesame", "Traceparent", "00-"+clientTrace+"-b7ad6b7169203331-01", "Tracestate", "vendor=1")
		r.expectWhole(form, a)
		p, d := r.record(r.prefill[0], id).Header, r.record(r.decode[0], id).Header
		parents[id] = [2]string{p.Get("Traceparent"), d.Get("Traceparent")}
		if p.Get("Tracestate") != "vendor=1" || len(p.Values("Traceparent")) != 1 {
			t.Errorf("%s: the prefill engine got %v", id, p)
		}
	}
	all := r.spansOf(c)["form0"] // all forms belong to the client's one trace
	if len(all) != 4*3 {
		t.Fatalf("%d spans, want 12: %s", len(all), names(all))
	}
	for i, form := range forms(prompt, 3) {
		id := fmt.Sprint("form", i)
		server := all[slices.IndexFunc(all, func(s tracetest.Span) bool { return s.Attributes["xpyd.request_id"] == id })]
		var legs []tracetest.Span
		for _, s := range all {
			if s.Parent == server.ID {
				legs = append(legs, s)
			}
		}
		if server.Name != "POST "+form.path() || server.Kind != "server" || server.Parent != "b7ad6b7169203331" || server.Status != "" || names(legs) != "prefill, decode" {
			t.Fatalf("%s: %+v, legs %s", id, server, names(legs))
		}
		for j, leg := range legs {
			if want := fmt.Sprintf("00-%s-%s-01", clientTrace, leg.ID); parents[id][j] != want {
				t.Errorf("%s, %s: the engine got %s, want %s", id, leg.Name, parents[id][j], want)
			}
			if leg.Kind != "client" || leg.Attributes["xpyd.outcome"] != "ok" || leg.Start.Before(server.Start) || leg.End.After(server.End) {
				t.Errorf("%s: %+v", id, leg)
			}
		}
		want := []string{"handoff"}
		if form.stream {
			want = append(want, "first_token")
		}
		if got := eventNames(server); !slices.Equal(got, want) {
			t.Errorf("%s: events %q, want %q", id, got, want)
		}
		operation := map[bool]string{true: "chat", false: "text_completion"}[form.chat]
		for key, want := range map[string]any{
			"gen_ai.operation.name": operation, "gen_ai.request.model": "sim", "gen_ai.usage.output_tokens": int64(3), "http.response.status_code": int64(200),
			"http.route": form.path(), "client.address": "127.0.0.1", "server.address": "127.0.0.1", "xpyd.path": "disaggregated", "xpyd.outcome": "ok",
		} {
			if got := server.Attributes[key]; got != want {
				t.Errorf("%s: %s is %v, want %v", id, key, got, want)
			}
		}
	}
	for _, secret := range []string{prompt, forms(prompt, 3)[0].want(), "sesame"} {
		if bytes.Contains(c.Bytes(), []byte(secret)) {
			t.Errorf("a span holds %q", secret)
		}
	}
	if n := strings.Count(r.logs.String(), `"trace_id":"`+clientTrace+`"`); n != 4 {
		t.Errorf("%d log lines name the trace, want 4", n)
	}
}

// Each API that takes both legs is traced, by its own route.
func TestTraceOfEachAPI(t *testing.T) {
	c := tracetest.Start(t)
	r := newRig(t, traced(c, rigOptions{}))
	apis := map[string][2]string{
		"/v1/messages":           {`{"model":"sim","max_tokens":2,"messages":[{"role":"user","content":"x"}]}`, "chat"},
		"/v1/responses":          {`{"model":"sim","max_output_tokens":2,"input":"x"}`, "chat"},
		"/inference/v1/generate": {`{"model":"sim","token_ids":[1,2,3],"sampling_params":{"max_tokens":2}}`, "text_completion"},
	}
	for path, api := range apis {
		if a := r.post(path, api[0], "X-Request-Id", strings.ReplaceAll(path, "/", ".")); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	found := r.spansOf(c)
	for path, api := range apis {
		spans := found[strings.ReplaceAll(path, "/", ".")]
		if len(spans) < 2 || spans[0].Name != "POST "+path || spans[len(spans)-1].Name != "decode" || spans[0].Attributes["gen_ai.operation.name"] != api[1] {
			t.Errorf("%s: %+v", path, spans)
		}
	}
}

// A round that failed shows as spans of its own, with what went wrong.
func TestTraceOfARetry(t *testing.T) {
	c := tracetest.Start(t)
	r := newRig(t, traced(c, rigOptions{prefill: 2, decode: 2, router: inTurn}))
	for _, e := range r.decode { // whichever comes first, and however many releases come between
		if err := e.SetFault(sim.Fault{Kind: sim.FaultStatus, Value: 500, Leg: "D"}); err != nil {
			t.Fatal(err)
		}
	}
	r.call(forms(prompt, 3)[0], "X-Request-Id", "retried")
	spans := r.spansOf(c)["retried"]
	if got := names(spans); got != "POST /v1/completions, prefill, decode, prefill, decode" {
		t.Fatalf("spans: %s", got)
	}
	if failed := spans[2]; failed.Status != "error" || failed.Attributes["error.type"] != "decode_failed" || failed.Attributes["xpyd.round"] != int64(1) {
		t.Errorf("the first decode leg: %+v", failed)
	}
	for i, want := range []int64{500, 200, 500, 200, 500} {
		if got := spans[i].Attributes["http.response.status_code"]; got != want {
			t.Errorf("%s %d: status %v, want %d", spans[i].Name, i, got, want)
		}
	}
	if spans[4].Attributes["xpyd.round"] != int64(2) || spans[0].Attributes["xpyd.rounds"] != int64(2) {
		t.Errorf("rounds: %+v, %+v", spans[4], spans[0])
	}
}

// What is relayed has a trace too. A request that needs no engine has none.
func TestTraceOfWhatIsRelayed(t *testing.T) {
	c := tracetest.Start(t)
	r := newRig(t, traced(c, rigOptions{}))
	for id, path := range map[string]string{"emb": "/v1/embeddings", "tok": "/tokenize"} {
		if a := r.post(path, `{"model":"sim","input":"x","prompt":"x"}`, "X-Request-Id", id); a.status != 200 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := r.post("/v1/embeddings", `{"model":"nobody","input":"x"}`, "X-Request-Id", "bad"); a.status != 404 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.send("GET", "/livez", "")
	r.send("GET", "/v1/models", "")
	found := r.spansOf(c)
	for id, want := range map[string]string{"emb": "POST /v1/embeddings, relay", "tok": "POST /tokenize, relay", "bad": "POST /v1/embeddings, relay"} {
		if got := names(found[id]); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	if emb, bad := found["emb"][1].Attributes, found["bad"][1].Attributes; emb["http.response.status_code"] != int64(200) || bad["http.response.status_code"] != int64(404) {
		t.Errorf("statuses of the legs: %v, %v", emb, bad)
	}
	if model := found["emb"][0].Attributes["gen_ai.request.model"]; model != "sim" {
		t.Errorf("the model is %v", model)
	}
	if len(found) != 3 || found["bad"][0].Attributes["http.response.status_code"] != int64(404) || found["bad"][0].Status != "" || found["bad"][1].Status != "error" {
		t.Errorf("%d traces, %+v", len(found), found["bad"])
	}
}

// A wait in the queue is an event, and stands in Server-Timing.
func TestTraceOfAQueue(t *testing.T) {
	c := tracetest.Start(t)
	b := newBarrier(sim.PhaseStreamEvent, 0)
	r := newRig(t, traced(c, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }, router: func(p *router.Config) { p.DecodeMaxInFlight, p.Queue.Wait = 1, 2*patience }}))
	stream := forms(prompt, 3)[1]
	first := make(chan answer, 1)
	go func() { first <- r.call(stream, "X-Request-Id", "first") }()
	r.reached(b)
	second := make(chan answer, 1)
	go func() { second <- r.call(stream, "X-Request-Id", "second") }()
	r.await("queued", func() bool { return r.metric("xpyd_queued") > 0 })
	b.open()
	r.soon(first)
	a := r.soon(second)
	if took, told := timings(t, a)["queue"]; !told || took <= 0 {
		t.Errorf("Server-Timing: %q", a.header.Get("Server-Timing"))
	}
	spans := r.spansOf(c)["second"]
	if len(spans) == 0 || !slices.Equal(eventNames(spans[0]), []string{"queue", "handoff", "first_token"}) {
		t.Errorf("%+v", spans)
	}
}

// timings reads Server-Timing, in milliseconds.
func timings(t *testing.T, a answer) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, phase := range strings.Split(a.header.Get("Server-Timing"), ", ") {
		name, dur, ok := strings.Cut(phase, ";dur=")
		var v float64
		if _, err := fmt.Sscan(dur, &v); !ok || err != nil || v < 0 {
			t.Fatalf("Server-Timing: %q", a.header.Get("Server-Timing"))
		}
		found[name] = v
	}
	return found
}

// Server-Timing has the phases that were over when the head went out. Their sum is not more than the
// client waited.
func TestServerTiming(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, form := range forms(prompt, 3) {
		began := time.Now()
		a := r.call(form)
		waited := ms(time.Since(began))
		got := timings(t, a)
		want := []string{"queue", "prefill", "handoff"}
		if form.stream {
			want = append(want, "first-token")
		}
		for _, name := range want {
			if _, ok := got[name]; !ok {
				t.Errorf("%s: no %s in %q", form.name(), name, a.header.Get("Server-Timing"))
			}
		}
		if len(got) != len(want) || got["queue"]+got["prefill"]+got["handoff"] > waited || got["first-token"] > waited || form.stream && got["first-token"] < got["prefill"] {
			t.Errorf("%s: %q, and the client waited %v ms", form.name(), a.header.Get("Server-Timing"), waited)
		}
		if a.header.Get("X-Xpyd-Prefill") != "" || a.header.Get("X-Xpyd-Decode") != "" {
			t.Errorf("%s: the engines are told unasked: %v", form.name(), a.header)
		}
	}
	if a := r.post("/v1/completions", "{"); a.header.Get("Server-Timing") != "" {
		t.Errorf("an answer that no engine gave: %v", a.header)
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func TestHeadersOfBackends(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Headers.Backends, c.Headers.Timing = true, false }})
	for _, form := range forms(prompt, 3) {
		h := r.call(form).header
		if h.Get("X-Xpyd-Prefill") != r.prefill[0].URL() || h.Get("X-Xpyd-Decode") != r.decode[0].URL() || h.Get("Server-Timing") != "" {
			t.Errorf("%s: %v", form.name(), h)
		}
	}
	h := r.post("/v1/completions", `{"model":"sim","prompt":"x","n":2,"max_tokens":2}`).header
	if h.Get("X-Xpyd-Path") != "decode_only" || h.Get("X-Xpyd-Prefill") != "" || h.Get("X-Xpyd-Decode") != r.decode[0].URL() {
		t.Errorf("decode alone: %v", h)
	}
}

// A leg that xpyd gives up by itself says nothing of its engine, and not that the client has left.
func TestOutcomeOfALegThatNobodyFailed(t *testing.T) {
	together(t)
	mooncake, _ := kvparams.Lookup("mooncake")
	for name, tt := range map[string]struct {
		rig   rigOptions
		plays sim.Fault // of the decode engines
		ask   func(r *rig, b *barrier)
		leg   fault.Leg
		want  router.Outcome
	}{
		"the other leg failed": {
			rig: rigOptions{dialect: mooncake, decode: 2}, plays: sim.Fault{Kind: sim.FaultStatus, Value: 500}, leg: fault.Prefill, want: router.NoVerdict,
			ask: func(r *rig, _ *barrier) { r.call(forms(prompt+"[[P:delay=5s]]", 3)[0]) },
		},
		"a deadline": {
			plays: sim.Fault{Kind: sim.FaultHang}, leg: fault.Decode, want: router.NoVerdict,
			ask: func(r *rig, b *barrier) {
				b.open()
				r.call(forms(prompt, 3)[0], "X-Request-Timeout", "1")
			},
		},
		"the end of the process": {
			rig:   rigOptions{config: func(c *proxy.Config) { c.Timeouts.Drain = 50 * time.Millisecond }},
			plays: sim.Fault{Kind: sim.FaultHang}, leg: fault.Decode, want: router.NoVerdict,
			ask: func(r *rig, b *barrier) {
				got := r.start(forms(prompt, 3)[0])
				r.reached(b)
				b.open()
				if err := r.server.Shutdown(); err != nil {
					t.Error(err)
				}
				r.soon(got)
			},
		},
		"the client": {
			plays: sim.Fault{Kind: sim.FaultHang}, leg: fault.Decode, want: router.ClientGone,
			ask: func(r *rig, b *barrier) {
				conn := r.dialRaw()
				_, _ = io.WriteString(conn, raw(forms(prompt, 3)[0], "leaver"))
				r.reached(b)
				b.open()
				_ = conn.Close()
				r.await("gone", func() bool { return r.metric("xpyd_client_gone_total") == 1 })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, b := tracetest.Start(t), newBarrier(sim.PhaseStalled, 0)
			tt.rig.engine = func(o *sim.Options) { o.Hook = b.hook }
			r := newRig(t, traced(c, tt.rig))
			t.Cleanup(b.open)
			for _, d := range r.decode {
				if err := d.SetFault(tt.plays); err != nil {
					t.Fatal(err)
				}
			}
			tt.ask(r, b)
			r.await("ended", func() bool { return r.metric("xpyd_requests_total") == 1 })
			counted := map[string]bool{}
			for _, line := range strings.Split(r.metricsText(), "\n") {
				if _, outcome, ok := strings.Cut(line, `leg="`+tt.leg.String()+`",outcome="`); ok && strings.HasPrefix(line, "xpyd_leg_requests_total") {
					outcome, _, _ = strings.Cut(outcome, `"`)
					counted[outcome] = true
				}
			}
			if len(counted) != 1 || !counted[tt.want.String()] {
				t.Errorf("%s legs counted as %v, want %s", tt.leg, counted, tt.want)
			}
			for _, spans := range r.spansOf(c) {
				for _, s := range spans {
					if got := s.Attributes["xpyd.outcome"]; s.Name == tt.leg.String() && got != tt.want.String() {
						t.Errorf("a span of %s has %v, want %s", s.Name, got, tt.want)
					}
				}
			}
		})
	}
}
