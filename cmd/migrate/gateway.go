package migrate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// gateway is where vllm-router, sglang-router and smg differ. The three are one family and share most
// of their flags.
type gateway struct {
	pd   string // the switch that turns prefill and decode engines on
	host string // where it listens by default
	// policies has xpyd's equivalent of each of its policies.
	policies map[string]policy
	// guards says that --api-key is also the key that clients must show.
	guards bool
	// engine is what the engines are unless a flag says it: vllm or sglang.
	engine string
	// collector is where traces go unless a flag says it. Empty: OTEL_EXPORTER_OTLP_ENDPOINT says it.
	collector string
}

// policy is xpyd's equivalent of one of their policies.
type policy struct {
	name    string
	headers []string // they name a session, whose requests go to the same engines
}

// The reasons that several flags share.
const (
	whyPrefix     = "policy prefix weighs the cache against the load itself (docs/routing-policies.md)"
	whyKubernetes = "xpyd does not ask Kubernetes; list the engines in prefill and decode"
	whyRetries    = "xpyd retries on other engines, within a budget of its own, and never repeats a decode that had a handle"
	whyBreaker    = "a backend that comes back rises to its share over health.slow_start"
	whyStart      = "xpyd starts at once and is ready as soon as its engines are"
	whyTokenizer  = "xpyd needs no tokenizer"
	whyParsers    = "the engines parse; give the parser to vllm serve"
	whyHistory    = "xpyd keeps no history"
	whyTrace      = "it counts only with --enable-trace"
	whyStderr     = "xpyd logs to standard error"
	whyModels     = "xpyd reads the models from the engines"
	whyKeys       = "admin_token_file guards the admin port, and admin_tls encrypts it"
	whyCaps       = "xpyd caps each engine (prefill_max_in_flight, decode_max_in_flight) and each client (limits.client_in_flight, keys_file)"
	whyWasm       = "xpyd has no plug-ins"
	whyRanks      = "xpyd asks vLLM engines for their number of ranks where the pools say so, as http://host:8000@auto (docs/configuration.md); write it after their URLs, or add --backend vllm to the command line and translate again"
	whyRankTokens = "policy least_tokens picks the rank with the fewest tokens, where the pools name the ranks, as http://host:8000@0..7"
	whyRequestID  = "xpyd takes X-Request-Id"
)

// aboutSGLang begins a configuration whose engines are SGLang's, because a flag or the router's default says so.
const aboutSGLang = "This file expects SGLang servers. For vLLM servers with NixlConnector, add --backend vllm to the command line and translate again."

// gatewayRules are the flags that the family shares.
func gatewayRules() []rule {
	rules := read(one, "host", "port", "prometheus-host", "prometheus-port", "policy", "prefill-policy", "decode-policy",
		"decode", "api-key", "max-payload-size", "request-timeout-secs", "cb-timeout-duration-secs", "otlp-traces-endpoint", "backend", "runtime")
	rules = append(rules, read(many, "worker-urls", "cors-allowed-origins")...)
	rules = append(rules, read(none, "enable-trace")...)
	rules = append(rules, read(target, "prefill")...)
	rules = append(rules,
		rule{flag: "log-level", takes: one, key: "log.level", value: logLevels},
		rule{flag: "queue-size", takes: one, key: "queue.length", value: count},
		rule{flag: "queue-timeout-secs", takes: one, key: "queue.wait", value: seconds},
		rule{flag: "health-failure-threshold", takes: one, key: "health.fall", value: count},
		rule{flag: "health-success-threshold", takes: one, key: "health.rise", value: count},
		rule{flag: "health-check-timeout-secs", takes: one, key: "health.timeout", value: seconds},
		rule{flag: "health-check-interval-secs", takes: one, key: "health.interval", value: seconds},
		rule{flag: "cb-failure-threshold", takes: one, key: "health.eject_after", value: count},
		rule{flag: "disable-circuit-breaker", key: "health.eject_after", value: func(string) (string, error) { return "0", nil }},
	)
	for _, more := range [][]rule{
		without(whyPrefix, one, "cache-threshold", "balance-abs-threshold", "balance-rel-threshold", "eviction-interval", "eviction-interval-secs"),
		without("routing.prefix_memory bounds the memory of policy prefix, in bytes", one, "max-tree-size"),
		without(whyKubernetes, none, "service-discovery"),
		without(whyKubernetes, one, "service-discovery-port", "service-discovery-namespace"),
		without(whyKubernetes, many, "selector", "prefill-selector", "decode-selector"),
		without(whyStart, one, "worker-startup-timeout-secs", "worker-startup-check-interval"),
		without(whyRetries, one, "retry-max-retries", "retry-initial-backoff-ms", "retry-max-backoff-ms", "retry-backoff-multiplier", "retry-jitter-factor"),
		without(whyRetries, none, "disable-retries"),
		without(whyBreaker, one, "cb-success-threshold"),
		without("xpyd counts failures in a row, without a window", one, "cb-window-duration-secs"),
		without("xpyd asks /health", one, "health-check-endpoint"),
		without(whyCaps, one, "max-concurrent-requests", "rate-limit-tokens-per-second"),
		without(whyStderr, one, "log-dir"),
		without(whyRequestID, many, "request-id-headers"),
		without(whyModels, none, "enable-igw"),
		without(whyHistory, one, "history-backend"),
	} {
		rules = append(rules, more...)
	}
	return rules
}

// fit makes the settings that take more than one flag, and sets the defaults that clients would miss.
func (w gateway) fit(g given, p *plan) error {
	p.listen(g, w.host, "30000")
	p.admin(g, "prometheus-host", "prometheus-port", "29000")
	if err := w.pools(g, p); err != nil {
		return err
	}
	if g.has("api-key") {
		p.set("backend_api_key", strconv.Quote(g.word("api-key", "")), "--api-key. Better in a file: backend_api_key_file")
	}
	if g.has("api-key") && w.guards {
		p.set("api_keys", list(g["api-key"][len(g["api-key"])-1:]), "--api-key. Better in a file: api_key_file")
	}
	timeout, err := g.read("request-timeout-secs", "1800", seconds)
	if err != nil {
		return err
	}
	p.set("timeouts.request", timeout, g.from("request-timeout-secs"))
	if err := p.eject(g); err != nil {
		return err
	}
	if err := p.authorities(g); err != nil {
		return err
	}
	if g.has("cors-allowed-origins") {
		p.set("cors.origins", list(g["cors-allowed-origins"]), g.from("cors-allowed-origins"))
	}
	w.traces(g, p)
	return p.bodies(g)
}

// traces sets where traces go.
func (w gateway) traces(g given, p *plan) {
	const to, ratio = "otlp-traces-endpoint", "otel-sampling-ratio"
	if !g.has("enable-trace") {
		for _, flag := range []string{to, ratio} {
			if g.has(flag) {
				p.note(flag, whyTrace)
			}
		}
		return
	}
	switch {
	case g.has(to) || w.collector != "":
		p.set("tracing.endpoint", strconv.Quote(collectorURL(g.word(to, w.collector), "http")), g.from("enable-trace", to))
	default:
		p.note("enable-trace", "OTEL_EXPORTER_OTLP_ENDPOINT switches traces on, and says where they go")
	}
	if g.has(ratio) {
		p.set("tracing.sample", strconv.Quote(g.word(ratio, "")), g.from(ratio))
	}
}

// collectorURL returns the URL of a collector that may be given as host and port.
func collectorURL(addr, scheme string) string {
	if strings.Contains(addr, "://") {
		return addr
	}
	return scheme + "://" + addr
}

// engines returns what the engines are, and the flag that may say it.
func (w gateway) engines(g given) (flag, engine string) {
	flag = "backend"
	if !g.has(flag) {
		flag = "runtime"
	}
	return flag, g.word(flag, w.engine)
}

// speak sets the connector for engines that do not speak NIXL. It returns their prefill URLs.
func (w gateway) speak(g given, p *plan) ([]string, error) {
	flag, engine := w.engines(g)
	connector := g.word("kv-connector", "nixl") // of vllm-router, which the rule of the flag sets
	switch engine {
	case "vllm":
	case "sglang":
		connector, p.about = "sglang", aboutSGLang
		p.set("connector", connector, g.from(flag)+". SGLang's engines are an experiment (docs/connectors.md)")
	default:
		return nil, fmt.Errorf("--%s: %q has no equivalent; xpyd speaks to vllm and, as an experiment, to sglang", flag, engine)
	}
	if connector == "nixl" {
		return g["prefill"], nil
	}
	return g.engines("prefill"), nil
}

// pools sets the engines and the policies that pick them.
func (w gateway) pools(g given, p *plan) error {
	flag, ranks, err := w.ranks(g, p)
	if err != nil {
		return err
	}
	pd := g.has(w.pd)
	if !pd && (g.has("prefill") || g.has("decode")) {
		return errors.New("--prefill and --decode count only with --" + w.pd)
	}
	of, _ := w.engines(g)
	if pd {
		prefill, err := w.speak(g, p)
		if err != nil {
			return err
		}
		p.set("prefill", list(ranked(prefill, ranks)), g.from(w.pd, "prefill", flag, of))
		p.set("decode", list(ranked(g["decode"], ranks)), g.from("decode", flag))
	} else {
		p.set("decode", list(ranked(g["worker-urls"], ranks)), g.from("worker-urls", flag)+". Without prefill engines xpyd is a plain balancer over decode")
	}
	if pd && g.has("worker-urls") {
		p.note("worker-urls", "it counts only without --"+w.pd)
	}
	for _, flag := range []string{"backend", "runtime"} {
		if g.has(flag) && !(pd && flag == of) {
			p.note(flag, "xpyd asks the engines by OpenAI's API")
		}
	}
	return w.pick(g, p, pd)
}

// pick sets the policies.
func (w gateway) pick(g given, p *plan, pd bool) error {
	pools := []string{"decode"}
	if pd {
		pools = []string{"prefill", "decode"}
	}
	var headers []string
	for _, pool := range pools {
		flag := "policy"
		if own := pool + "-policy"; g.has(own) && pd {
			flag = own
		}
		word := g.word(flag, "cache_aware")
		theirs, ok := w.policies[word]
		if !ok {
			return fmt.Errorf("--%s: %q is none of %s", flag, word, strings.Join(sorted(w.policies), ", "))
		}
		p.set(pool+"_policy", theirs.name, g.from(flag))
		if theirs.headers != nil { // the same for both pools, in order of precedence
			headers = theirs.headers
		}
	}
	if headers != nil {
		p.set("affinity.headers", list(headers), "the policy keeps sessions together. Remove this if clients must not choose engines")
	}
	return nil
}

// eject sets how long an ejected backend gets no requests. health.eject_max must not be shorter.
func (p *plan) eject(g given) error {
	if !g.has("cb-timeout-duration-secs") {
		return nil
	}
	text, err := g.read("cb-timeout-duration-secs", "", seconds)
	if err != nil {
		return err
	}
	from := g.from("cb-timeout-duration-secs")
	p.set("health.eject_for", text, from)
	if n, _ := strconv.Atoi(strings.TrimSuffix(text, "s")); n > 300 {
		p.set("health.eject_max", text, from)
	}
	return nil
}

// bodies sets the largest body, and a budget that lets one client hold such a body.
func (p *plan) bodies(g given) error {
	text, err := g.read("max-payload-size", "536870912", count)
	if err != nil {
		return err
	}
	from := g.from("max-payload-size")
	p.set("limits.body", text, from)
	if n, _ := strconv.Atoi(text); n > 512<<20 {
		p.set("limits.body_budget", strconv.Itoa(2*n), from+". limits.client_share of it must hold one body")
	}
	return nil
}
