package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/metrics/trace/tracetest"
)

const (
	client  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	refused = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00" // by the client's sampler
)

// quiet fails the test if spans are lost.
func quiet(t *testing.T) func(error) {
	return func(err error) { t.Errorf("reported: %v", err) }
}

func tracer(t *testing.T, cfg Config) *Tracer {
	t.Helper()
	made, err := New(cfg, "1.2.3", quiet(t))
	if err != nil || made == nil {
		t.Fatalf("%v, %v", made, err)
	}
	return made
}

// finished makes a request with one leg, and ends it.
func finished(on *Tracer, parent, state string) (fields, legFields string) {
	r := on.Begin(Incoming{Traceparent: []byte(parent), Tracestate: []byte(state), Method: "POST", Route: "/v1/completions", Host: []byte("x:8080"), Start: time.Now()})
	r.SetModel([]byte("m"))
	usual := r.AppendFields([]byte("User-Agent: x\r\n"))
	var l Leg
	r.Leg(&l, "prefill", "http://10.0.0.1:8100", "/v1/completions", 1, usual)
	legFields = string(l.Fields(usual))
	l.End(LegEnd{Outcome: "ok", Status: 200})
	r.End(End{Status: 200, Outcome: "ok"})
	return string(usual), legFields
}

// Both protocols carry the same spans: a server span, and its leg beneath.
func TestExport(t *testing.T) {
	for _, protocol := range []string{GRPC, HTTP} {
		t.Run(strings.ReplaceAll(protocol, "/", "-"), func(t *testing.T) {
			c := tracetest.Start(t)
			on := tracer(t, Config{Endpoint: map[string]string{GRPC: c.GRPC, HTTP: c.HTTP}[protocol], Protocol: protocol, Sample: 1})
			finished(on, "", "")
			on.Close()
			spans := c.Spans()
			if len(spans) != 2 {
				t.Fatalf("%d spans", len(spans))
			}
			server, leg := spans[0], spans[1]
			if server.Kind != "server" || server.Name != "POST /v1/completions" || server.Parent != "" ||
				leg.Kind != "client" || leg.Name != "prefill" || leg.Parent != server.ID || leg.Trace != server.Trace {
				t.Errorf("%+v\n%+v", server, leg)
			}
			for _, want := range []struct {
				of    map[string]any
				key   string
				value any
			}{
				{server.Resource, "service.name", "xpyd"}, {server.Resource, "service.version", "1.2.3"},
				{server.Attributes, "http.route", "/v1/completions"}, {server.Attributes, "server.address", "x"},
				{server.Attributes, "server.port", int64(8080)}, {server.Attributes, "gen_ai.request.model", "m"},
				{server.Attributes, "http.response.status_code", int64(200)},
				{leg.Attributes, "server.address", "10.0.0.1"}, {leg.Attributes, "server.port", int64(8100)},
				{leg.Attributes, "url.full", "http://10.0.0.1:8100/v1/completions"}, {leg.Attributes, "xpyd.round", int64(1)},
			} {
				if want.of[want.key] != want.value {
					t.Errorf("%s: %v, want %v", want.key, want.of[want.key], want.value)
				}
			}
		})
	}
}

// The client's trace goes on, with its state, through the request to each leg.
func TestParent(t *testing.T) {
	c := tracetest.Start(t)
	on := tracer(t, Config{Endpoint: c.GRPC, Sample: 0}) // the client decides
	usual, leg := finished(on, client, "vendor=1")
	on.Close()
	spans := c.Spans()
	if len(spans) != 2 || spans[0].Trace != client[3:35] || spans[0].Parent != client[36:52] || spans[0].State != "vendor=1" {
		t.Fatalf("%+v", spans)
	}
	line := func(id string) string {
		return fmt.Sprintf("User-Agent: x\r\nTraceparent: 00-%s-%s-01\r\nTracestate: vendor=1\r\n", client[3:35], id)
	}
	if usual != line(spans[0].ID) || leg != line(spans[1].ID) {
		t.Errorf("the request has %q, its leg %q", usual, leg)
	}
}

// What is not sampled goes on as not sampled, so that no engine begins a trace of its own.
func TestSampling(t *testing.T) {
	c := tracetest.Start(t)
	for _, tt := range []struct {
		sample float64
		parent string
		want   string // flags
	}{{1, "", "01"}, {0, "", "00"}, {1, refused, "00"}, {0, client, "01"}, {0, "00-rubbish", "00"}, {1, client + "-more", "01"}} {
		before := len(c.Spans())
		on := tracer(t, Config{Endpoint: c.GRPC, Sample: tt.sample})
		usual, leg := finished(on, tt.parent, "")
		on.Close()
		came := len(c.Spans()) - before
		if !strings.HasSuffix(usual, "-"+tt.want+"\r\n") || !strings.HasSuffix(leg, "-"+tt.want+"\r\n") || came != map[string]int{"01": 2, "00": 0}[tt.want] {
			t.Errorf("sample %v, parent %q: %d spans, %q, %q", tt.sample, tt.parent, came, usual, leg)
		}
	}
	on := tracer(t, Config{Endpoint: c.GRPC, Sample: 0.25})
	defer on.Close()
	sampled := 0
	for range 4000 {
		if usual, _ := finished(on, "", ""); strings.HasSuffix(usual, "-01\r\n") {
			sampled++
		}
	}
	if sampled < 800 || sampled > 1200 { // 1,000 and more than 7 standard deviations
		t.Errorf("%d of 4,000 are sampled, want a quarter", sampled)
	}
}

// OpenTelemetry's own variables say what the configuration leaves open.
func TestVariables(t *testing.T) {
	c := tracetest.Start(t)
	if DefaultConfig().On() {
		t.Fatal("on without an endpoint")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.HTTP)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", HTTP)
	t.Setenv("OTEL_SERVICE_NAME", "front")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	on := tracer(t, DefaultConfig())
	finished(on, "", "")
	on.Close()
	if spans := c.Spans(); len(spans) != 2 || spans[0].Resource["service.name"] != "front" || spans[0].Resource["deployment.environment"] != "test" {
		t.Errorf("%+v", spans)
	}
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	on = tracer(t, DefaultConfig())
	finished(on, "", "")
	on.Close()
	if n := len(c.Spans()); n != 2 {
		t.Errorf("%d spans with OTEL_TRACES_SAMPLER=always_off", n-2)
	}
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if got, err := New(Config{Endpoint: c.HTTP}, "", quiet(t)); got != nil || err != nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if _, err := New(DefaultConfig(), "", quiet(t)); err == nil || !strings.Contains(err.Error(), "http/protobuf") {
		t.Errorf("a protocol that is not known: %v", err)
	}
}

func TestCheckEndpoint(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"": true, "http://c:4317": true, "https://c.example/otlp": true,
		"c:4317": false, "grpc://c:4317": false, "http://": false, "http://u:p@c": false, "http://c?key=1": false,
	} {
		if err := (Config{Endpoint: endpoint}).CheckEndpoint(); (err == nil) != ok {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for endpoint, want := range map[string]string{
		"http://c:4318": "http://c:4318/v1/traces", "http://c:4318/": "http://c:4318/v1/traces", "https://c/otlp/v1/traces": "https://c/otlp/v1/traces",
	} {
		if got := (Config{Endpoint: endpoint}).httpURL(); got != want {
			t.Errorf("%q: %q, want %q", endpoint, got, want)
		}
	}
}

// A collector that is not there costs a report and nothing else.
func TestNoCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
	heard := make(chan error, 8)
	on, err := New(Config{Endpoint: "http://127.0.0.1:1", Protocol: HTTP, Sample: 1}, "", func(err error) { heard <- err })
	if err != nil {
		t.Fatal(err)
	}
	finished(on, "", "")
	on.Close()
	select {
	case err := <-heard:
		if !strings.Contains(err.Error(), "2 spans lost") {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing is reported")
	}
}

// Without a tracer nothing is allocated, and the header lines stay as they are.
func TestOff(t *testing.T) {
	var off *Tracer
	fields, model := []byte("User-Agent: x\r\n"), []byte("m")
	var l Leg
	if n := testing.AllocsPerRun(100, func() {
		r := off.Begin(Incoming{Traceparent: fields, Method: "POST"})
		r.SetModel(model)
		r.Leg(&l, "prefill", "http://10.0.0.1", "/", 1, r.AppendFields(fields))
		if got := l.Fields(fields); len(got) != len(fields) {
			t.Errorf("%q", got)
		}
		l.End(LegEnd{Outcome: "ok"})
		r.End(End{Outcome: "ok"})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	off.Close()
}

// BenchmarkRequest is what the trace of a completion costs: a request with two legs, and the collector
// on the same machine.
func BenchmarkRequest(b *testing.B) {
	for name, cfg := range map[string]Config{"off": {}, "none of them": {Sample: 0}, "1 in 100": {Sample: 0.01}, "all": {Sample: 1}} {
		b.Run(name, func(b *testing.B) {
			var on *Tracer
			if name != "off" {
				cfg.Endpoint = tracetest.Start(b).GRPC
				var err error
				if on, err = New(cfg, "", func(error) {}); err != nil {
					b.Fatal(err)
				}
			}
			var p, d Leg
			host, model, fields := []byte("x:8080"), []byte("m"), make([]byte, 0, 512)
			b.ReportAllocs()
			for b.Loop() {
				r := on.Begin(Incoming{Method: "POST", Route: "/v1/completions", Host: host, Start: time.Now()})
				fields = r.AppendFields(fields[:0])
				r.SetModel(model)
				r.Leg(&p, "prefill", "http://10.0.0.1:8100", "/v1/completions", 1, fields)
				p.End(LegEnd{Outcome: "ok"})
				r.Leg(&d, "decode", "http://10.0.0.2:8200", "/v1/completions", 1, fields)
				d.End(LegEnd{Outcome: "ok"})
				r.End(End{Status: 200, Outcome: "ok"})
			}
			b.StopTimer()
			on.Close()
		})
	}
}

// A span takes only UTF-8, and a batch only so many bytes. The name of a model, which is the client's and
// may be cut within a character, must not cost other requests their spans.
func TestAnyModel(t *testing.T) {
	c := tracetest.Start(t)
	on := tracer(t, Config{Endpoint: c.GRPC, Sample: 1})
	for _, model := range []string{"sim", "caf\xc3", "\xff\xfe", strings.Repeat("x", 255) + "é", strings.Repeat("m", 32<<20)} {
		r := on.Begin(Incoming{Method: "POST", Route: "/v1/completions", Start: time.Now()})
		r.SetModel([]byte(model))
		r.End(End{Status: 200})
	}
	on.Close()
	var got []string
	for _, s := range c.Spans() {
		got = append(got, fmt.Sprint(s.Attributes["gen_ai.request.model"]))
	}
	slices.Sort(got)
	want := []string{"caf\uFFFD", strings.Repeat("m", 256), "sim", strings.Repeat("x", 255) + "\uFFFD", "\uFFFD"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
