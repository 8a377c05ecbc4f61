// Package tracetest is a collector of traces for tests. It speaks OTLP as gRPC and as HTTP, by the
// types of OpenTelemetry's own proto package.
package tracetest

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is a span as the collector got it.
type Span struct {
	Trace, ID, Parent string // in hex; Parent is empty for a root
	State             string
	Name, Kind        string // Kind is server or client
	Status            string // error, or empty
	Attributes        map[string]any
	Resource          map[string]any
	Events            []Event
	Start, End        time.Time
}

// Event is an event of a span.
type Event struct {
	Name       string
	Time       time.Time
	Attributes map[string]any
}

// Collector keeps the spans that it gets.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	GRPC, HTTP string // URLs

	mu    sync.Mutex
	spans []Span
	all   []byte // the messages as they came
}

// Start serves both protocols until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	rpc, rpcAt := grpc.NewServer(), listen()
	collector.RegisterTraceServiceServer(rpc, c)
	ended := make(chan struct{}, 2)
	go func() { _ = rpc.Serve(rpcAt); ended <- struct{}{} }()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.post)
	web, webAt := &http.Server{Handler: mux}, listen()
	go func() { _ = web.Serve(webAt); ended <- struct{}{} }()
	t.Cleanup(func() {
		rpc.Stop()
		_ = web.Close()
		<-ended
		<-ended
	})
	c.GRPC, c.HTTP = "http://"+rpcAt.Addr().String(), "http://"+webAt.Addr().String()
	return c
}

// Export takes spans over gRPC.
func (c *Collector) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.keep(req)
	return &collector.ExportTraceServiceResponse{}, nil
}

// post takes spans over HTTP.
func (c *Collector) post(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	var req collector.ExportTraceServiceRequest
	b, err := io.ReadAll(body)
	if err == nil {
		err = proto.Unmarshal(b, &req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.keep(&req)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *Collector) keep(req *collector.ExportTraceServiceRequest) {
	raw, _ := proto.Marshal(req)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, raw...)
	for _, of := range req.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				span := spanOf(s)
				span.Resource = attributes(of.GetResource().GetAttributes())
				c.spans = append(c.spans, span)
			}
		}
	}
}

func spanOf(s *tracepb.Span) Span {
	span := Span{
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		State: s.TraceState, Name: s.Name, Attributes: attributes(s.Attributes),
		Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)),
	}
	switch s.Kind {
	case tracepb.Span_SPAN_KIND_SERVER:
		span.Kind = "server"
	case tracepb.Span_SPAN_KIND_CLIENT:
		span.Kind = "client"
	}
	if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		span.Status = "error"
	}
	for _, e := range s.Events {
		span.Events = append(span.Events, Event{e.Name, time.Unix(0, int64(e.TimeUnixNano)), attributes(e.Attributes)})
	}
	return span
}

func attributes(list []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			m[a.Key] = v.DoubleValue
		case *common.AnyValue_BoolValue:
			m[a.Key] = v.BoolValue
		}
	}
	return m
}

// Spans returns all that has come, in the order of their beginnings.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := slices.Clone(c.spans)
	slices.SortStableFunc(spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return spans
}

// Bytes returns all that has come, as it came.
func (c *Collector) Bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}
