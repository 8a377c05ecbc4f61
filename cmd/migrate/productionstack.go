package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// productionStack has the flags of the router of vllm-project/production-stack
// (src/vllm_router/parsers/parser.py there).
func productionStack() router {
	rules := read(one, "host", "port", "service-discovery", "static-backends", "static-model-labels", "prefill-model-labels",
		"decode-model-labels", "routing-logic", "session-key", "otel-endpoint")
	rules = append(rules, read(none, "otel-secure")...)
	rules = append(rules,
		rule{flag: "backend-health-check-timeout-seconds", takes: one, key: "health.timeout", value: seconds},
		rule{flag: "static-backend-health-check-timeout-seconds", takes: one, key: "health.timeout", value: seconds},
		rule{flag: "static-backend-health-check-interval", takes: one, key: "health.interval", value: seconds},
		rule{flag: "engine-stats-interval", takes: one, key: "routing.poll", value: seconds},
		rule{flag: "log-level", takes: one, key: "log.level", value: logLevels},
		rule{flag: "log-format", takes: one, key: "log.format", value: oneOf(map[string]string{"text": "console", "json": "json"})},
	)
	const (
		lmcache = "policy prefix needs no LMCache controller"
		batch   = "xpyd has no batches and keeps no files"
		sentry  = "xpyd reports to its log and its metrics"
	)
	for _, more := range [][]rule{
		without("xpyd's routes begin at /", one, "root-path"),
		without(whyKubernetes, one, "k8s-service-discovery-type", "k8s-port", "k8s-namespace", "k8s-label-selector", "k8s-watcher-timeout-seconds"),
		without(whyModels, one, "static-models", "static-aliases", "static-model-types"),
		without("xpyd always checks its engines, by /health", none, "static-backend-health-checks"),
		without(lmcache, one, "lmcache-controller-port", "lmcache-controller-reply-port", "lmcache-controller-heartbeat-port",
			"lmcache-health-check-interval", "lmcache-worker-timeout", "kv-aware-threshold"),
		without(whyPrefix, one, "prefix-min-match-length"),
		without(whyWasm, one, "callbacks", "request-rewriter", "feature-gates", "semantic-cache-model", "semantic-cache-dir", "semantic-cache-threshold"),
		without(batch, none, "enable-batch-api"),
		without(batch, one, "file-storage-class", "file-storage-path", "batch-processor"),
		without("xpyd's metrics are counters and histograms; Prometheus computes windows from them", one, "request-stats-window"),
		without("the metrics have them", none, "log-stats"),
		without("the metrics have them", one, "log-stats-interval"),
		without("it may hold further flags; give them to xpyd migrate, and reload xpyd's own file with HUP", one, "dynamic-config-yaml", "dynamic-config-json"),
		without(sentry, one, "sentry-dsn", "sentry-traces-sample-rate", "sentry-profile-session-sample-rate"),
		without("the service is xpyd, or what OTEL_SERVICE_NAME says", one, "otel-service-name"),
		without(whyRetries, one, "max-instance-failover-reroute-attempts"),
		without("xpyd serves vLLM engines only", one, "external-providers-config"),
	} {
		rules = append(rules, more...)
	}
	return router{name: "production-stack", rules: rules, fit: fitStack}
}

func fitStack(g given, p *plan) error {
	p.listen(g, "0.0.0.0", "8001")
	if found := g.word("service-discovery", "static"); found != "static" {
		p.note("service-discovery", whyKubernetes)
	}
	fitStackTraces(g, p)
	backends := splitList(g.word("static-backends", ""))
	switch logic := g.word("routing-logic", ""); logic {
	case "disaggregated_prefill", "disaggregated_prefill_orchestrated":
		return p.stackPools(g, backends, logic)
	case "roundrobin":
		p.set("decode_policy", "round_robin", g.from("routing-logic"))
	case "kvaware", "prefixaware":
		p.set("decode_policy", "prefix", g.from("routing-logic"))
	case "session":
		p.set("decode_policy", "least_request", g.from("routing-logic"))
		if !g.has("session-key") {
			return errors.New("--routing-logic session needs --session-key")
		}
		p.set("affinity.headers", list([]string{g.word("session-key", "")}), g.from("session-key"))
	case "":
		return errors.New("--routing-logic is missing")
	default:
		return fmt.Errorf("--routing-logic: %q is none of roundrobin, session, kvaware, prefixaware, disaggregated_prefill, disaggregated_prefill_orchestrated", logic)
	}
	p.set("decode", list(backends), g.from("service-discovery", "static-backends")+". Without prefill engines xpyd is a plain balancer over decode")
	return nil
}

// stackPools tells prefill and decode engines apart by their labels.
func (p *plan) stackPools(g given, backends []string, logic string) error {
	labels := splitList(g.word("static-model-labels", ""))
	if len(labels) != len(backends) {
		return fmt.Errorf("%d --static-backends and %d --static-model-labels; give each backend its label", len(backends), len(labels))
	}
	for _, pool := range []string{"prefill", "decode"} {
		chosen := splitList(g.word(pool+"-model-labels", ""))
		var urls []string
		for i, label := range labels {
			if slices.Contains(chosen, label) {
				urls = append(urls, backends[i])
			}
		}
		if len(urls) == 0 && len(backends) > 0 {
			return fmt.Errorf("--%s-model-labels: no backend has one of them", pool)
		}
		p.set(pool, list(urls), g.from("service-discovery", "routing-logic", "static-backends", "static-model-labels", pool+"-model-labels"))
		if logic == "disaggregated_prefill_orchestrated" {
			p.set(pool+"_policy", "round_robin", g.from("routing-logic"))
		}
	}
	if logic == "disaggregated_prefill" {
		p.note("routing-logic", "there, clients send each prompt twice, and LMCache moves the blocks. Here they send it once, and the engines need NixlConnector")
	}
	return nil
}

// fitStackTraces sets where traces go.
func fitStackTraces(g given, p *plan) {
	scheme := "http"
	if g.has("otel-secure") {
		scheme = "https"
	}
	switch {
	case g.has("otel-endpoint"):
		p.set("tracing.endpoint", strconv.Quote(collectorURL(g.word("otel-endpoint", ""), scheme)), g.from("otel-endpoint", "otel-secure"))
	case g.has("otel-secure"):
		p.note("otel-secure", "it counts only with --otel-endpoint")
	}
}

func splitList(text string) (words []string) {
	for _, w := range strings.Split(text, ",") {
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}
