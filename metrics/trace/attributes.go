package trace

import (
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The conventions of generative AI have no Go package. The last is vLLM's own, so that it can be
// compared with what an engine says of the same request.
const (
	genAIOperation   = attribute.Key("gen_ai.operation.name")
	genAIProvider    = attribute.Key("gen_ai.provider.name")
	genAIModel       = attribute.Key("gen_ai.request.model")
	genAIInput       = attribute.Key("gen_ai.usage.input_tokens")
	genAIOutput      = attribute.Key("gen_ai.usage.output_tokens")
	genAICachedInput = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	genAIFirstToken  = attribute.Key("gen_ai.latency.time_to_first_token") // in seconds
)

// list gathers attributes, and leaves out what is not known.
type list []attribute.KeyValue

func (l *list) text(k attribute.Key, v string) {
	if v != "" {
		*l = append(*l, k.String(v))
	}
}

func (l *list) count(k attribute.Key, n int) {
	if n > 0 {
		*l = append(*l, k.Int(n))
	}
}

// address adds host and port, from host:port or a host alone.
func (l *list) address(hostPort string) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	l.text(semconv.ServerAddressKey, host)
	n, _ := strconv.Atoi(port)
	l.count(semconv.ServerPortKey, n)
}

// legAttributes describe a leg at its start. The query of a request may hold anything, so it is left
// out.
func legAttributes(url, path string, round int) []attribute.KeyValue {
	l := list{semconv.HTTPRequestMethodKey.String("POST"), semconv.URLFull(url + path)}
	_, hostPort, _ := strings.Cut(url, "://")
	l.address(hostPort)
	l.count("xpyd.round", round)
	return l
}

func (e *LegEnd) attributes() []attribute.KeyValue {
	var l list
	l.text("xpyd.leg_id", e.ID)
	l.count(semconv.HTTPResponseStatusCodeKey, e.Status)
	l.text("xpyd.outcome", e.Outcome)
	l.text(semconv.ErrorTypeKey, e.Code)
	l.count(genAIInput, e.PromptTokens)
	l.count(genAICachedInput, e.CachedTokens)
	return l
}

func (in *Incoming) attributes() []attribute.KeyValue {
	l := make(list, 0, 10)
	l.text(semconv.HTTPRequestMethodKey, in.Method)
	l.text(semconv.HTTPRouteKey, in.Route)
	l.text(semconv.URLPathKey, in.Route)
	l.text(semconv.URLSchemeKey, in.Scheme)
	l.address(string(in.Host))
	l.text(semconv.ClientAddressKey, in.Client.String())
	l.text("xpyd.request_id", in.RequestID)
	l.text(genAIOperation, in.Operation)
	l.text(genAIProvider, "vllm")
	return l
}

func (e *End) attributes() []attribute.KeyValue {
	l := make(list, 0, 8)
	l.count(semconv.HTTPResponseStatusCodeKey, e.Status)
	l.text(semconv.ErrorTypeKey, e.Code)
	l.count(genAIInput, e.Input)
	l.count(genAIOutput, e.Output)
	if !e.First.IsZero() {
		l = append(l, genAIFirstToken.Float64(e.First.Sub(e.Start).Seconds()))
	}
	l.text("xpyd.outcome", e.Outcome)
	l.text("xpyd.path", e.Path)
	l.text("xpyd.reason", e.Reason)
	l.count("xpyd.rounds", e.Rounds)
	return l
}
