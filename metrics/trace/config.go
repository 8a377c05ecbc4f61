package trace

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Config says where traces go. What it leaves open is read from the variables that OpenTelemetry
// defines (OTEL_EXPORTER_OTLP_*, OTEL_SERVICE_NAME and others).
type Config struct {
	// Endpoint is the collector's URL. http:// sends without TLS. If it is empty, that of the
	// variables holds, and without one there are no traces.
	Endpoint string `mapstructure:"endpoint"`
	// Protocol is GRPC or HTTP. If it is empty, that of the variables holds, and without one GRPC.
	Protocol string `mapstructure:"protocol"`
	// Sample is the part of the requests that are traced, 0 to 1, among those whose client did not
	// decide it.
	Sample float64 `mapstructure:"sample"`
}

// Protocols. The names are those of OpenTelemetry.
const (
	GRPC = "grpc"
	HTTP = "http/protobuf"
)

// DefaultConfig traces nothing, unless a variable names a collector.
func DefaultConfig() Config { return Config{Sample: 1} }

// CheckEndpoint says what is wrong with the endpoint. Its text follows the value.
func (c Config) CheckEndpoint() error {
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("must be a URL with http:// or https://; try http://127.0.0.1:4317 (grpc) or http://127.0.0.1:4318 (http/protobuf)")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("must hold no user, password or query; give what the collector asks for in OTEL_EXPORTER_OTLP_HEADERS")
	}
	return nil
}

// variable returns the value of a variable for traces, or of the one for all signals.
func variable(name string) string {
	if v := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
		return v
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_" + name)
}

// On reports whether there is somewhere to send traces to.
func (c Config) On() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return c.Endpoint != "" || variable("ENDPOINT") != ""
}

// protocol returns the protocol in force.
func (c Config) protocol() string {
	if c.Protocol != "" {
		return c.Protocol
	}
	if v := variable("PROTOCOL"); v != "" {
		return v
	}
	return GRPC
}

// New makes the tracer of a process, or nil if c is not on. It does not wait for the collector, and
// goes on without it. report hears why spans could not be sent.
func New(c Config, version string, report func(error)) (*Tracer, error) {
	if !c.On() {
		return nil, nil
	}
	ctx := context.Background()
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("xpyd"), semconv.ServiceVersion(version)),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	exporter, err := c.exporter(ctx) // last, because it runs from here on
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	options := []sdk.TracerProviderOption{sdk.WithBatcher(&reporter{exporter, report}), sdk.WithResource(about)}
	if c.Sample < 1 { // otherwise OTEL_TRACES_SAMPLER holds
		options = append(options, sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(c.Sample))))
	}
	provider := sdk.NewTracerProvider(options...)
	return &Tracer{provider: provider, spans: provider.Tracer("xpyd")}, nil
}

func (c Config) exporter(ctx context.Context) (sdk.SpanExporter, error) {
	switch c.protocol() {
	case GRPC:
		var options []otlptracegrpc.Option
		if c.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(c.Endpoint))
		}
		return otlptracegrpc.New(ctx, options...)
	case HTTP:
		var options []otlptracehttp.Option
		if c.Endpoint != "" {
			options = append(options, otlptracehttp.WithEndpointURL(c.httpURL()))
		}
		return otlptracehttp.New(ctx, options...)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q must be %s or %s", c.protocol(), GRPC, HTTP)
}

// httpURL is the endpoint with the path of traces, unless it has a path already.
func (c Config) httpURL() string {
	base := strings.TrimSuffix(c.Endpoint, "/")
	if u, err := url.Parse(base); err == nil && u.Path == "" {
		return base + "/v1/traces"
	}
	return base
}

// reporter tells what went wrong with an export. The SDK would tell a handler of the whole process.
type reporter struct {
	sdk.SpanExporter
	report func(error)
}

// ExportSpans sends spans. Their loss is reported and no more.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := r.SpanExporter.ExportSpans(ctx, spans); err != nil {
		r.report(fmt.Errorf("%d spans lost: %w", len(spans), err))
	}
	return nil
}
