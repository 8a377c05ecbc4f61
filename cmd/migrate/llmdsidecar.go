package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// llmdSidecar has the flags of llm-d's pd-sidecar (llm-d/llm-d-router, formerly
// llm-d-inference-scheduler, and before that llm-d-routing-sidecar; pkg/sidecar/proxy/options.go).
func llmdSidecar() router {
	rules := read(one, "port", "model-server-port", "vllm-port", "kv-connector", "connector", "metrics-port", "metrics-cert-dir", "enable-tls", "cert-path")
	rules = append(rules, read(none, "decoder-use-tls", "secure-serving", "secure-proxy")...)
	const (
		fixed   = "xpyd sends prefills only to the engines in prefill"
		file    = "its keys are the names of flags; give them to xpyd migrate as flags"
		checked = "xpyd checks the certificates of engines; backend_tls.ca names their CA"
		morio   = "connector moriio has no such setting (docs/connectors.md)"
		tier    = "a prefill engine of xpyd pulls no prefix from another engine"
	)
	for _, more := range [][]rule{
		without("a request goes to one decode engine; list every rank's address in decode", one, "data-parallel-size"),
		without("list the encode engines in encode; xpyd needs no key for how encodings travel (docs/encode.md)", one, "ec-connector"),
		without("give prefill URLs that begin with https://", none, "prefiller-use-tls"),
		without(checked, none, "prefiller-tls-insecure-skip-verify", "decoder-tls-insecure-skip-verify"),
		without(checked, one, "tls-insecure-skip-verify"),
		without("xpyd speaks TLS 1.2 and later, with the ciphers of Go", one, "tls-min-version", "tls-cipher-suites"),
		without(fixed, none, "enable-ssrf-protection", "enable-prefiller-sampling"),
		without(fixed, one, "inference-pool", "inference-pool-namespace", "inference-pool-name", "pool-group"),
		without("policy prefix sends the next turn where the last one was", none, "enable-speculative-prefill"),
		without(whyRetries, one, "prefill-max-retries", "prefill-retry-backoff"),
		without("xpyd keeps as many connections as it has requests", one, "max-idle-conns-per-host"),
		without("xpyd asks for a whole answer at once", one, "decode-chunk-size"),
		without("OTEL_EXPORTER_OTLP_ENDPOINT switches traces on, and says where they go", none, "tracing"),
		without(file, one, "configuration", "configuration-file"),
		without("log.level is debug, info, warn or error", one, "zap-log-level", "zap-stacktrace-level", "zap-time-encoding", "zap-encoder", "v"),
		without("log.format is json or console", none, "zap-devel"),
		without("with connector mooncake or sglang, bootstrap=PORT after the URL of each prefill engine says it", one, "mooncake-bootstrap-port"),
		without("with connector offloading-p2p, bootstrap=PORT after the URL of each prefill engine says it, 5710 unless said", one, "p2p-connector-port"),
		without(tier, none, "enable-p2p-pull"),
		without("connector moriio-write is that mode (docs/connectors.md)", none, "moriio-write-mode"),
		without(morio, none, "moriio-parallel-dispatch"),
		without(morio, one, "moriio-decode-notify-port", "moriio-local-pod-ip", "moriio-decode-handshake-port", "moriio-parallel-decode-wait-timeout",
			"moriio-prefill-handshake-port", "moriio-prefill-notify-port", "moriio-tp-size", "moriio-dp-size", "moriio-dp-size-local", "moriio-remote-hosts", "moriio-decode-hosts"),
	} {
		rules = append(rules, more...)
	}
	return router{
		name: "llm-d-sidecar",
		about: "There, each request names its prefill engine (x-prefiller-host-port) and its encode engines\n" +
			"# (x-encoder-hosts-ports). Here, the proxy picks them: list them in prefill and encode, and every decode\n" +
			"# engine in decode, and run one xpyd in place of the sidecars.",
		rules: rules, fit: fitSidecar,
	}
}

func fitSidecar(g given, p *plan) error {
	plain := []string{"port"}
	for _, flag := range []string{"secure-proxy", "secure-serving"} {
		if g.has(off(flag)) {
			plain = append(plain, flag)
		}
	}
	p.set("listen", strconv.Quote(":"+g.word("port", "8000")), g.from(plain...))
	if g.has("metrics-port") && g.word("metrics-port", "") != "0" {
		p.admin(g, "", "metrics-port", "")
	}
	fitSidecarTLS(g, p)
	server, connector := "model-server-port", "kv-connector"
	if !g.has(server) {
		server = "vllm-port"
	}
	if !g.has(connector) {
		connector = "connector"
	}
	scheme := "http"
	if g.has("decoder-use-tls") || slices.Contains(strings.Split(strings.Join(g["enable-tls"], ","), ","), "decoder") {
		scheme = "https"
	}
	if slices.Contains(strings.Split(strings.Join(g["enable-tls"], ","), ","), "encoder") {
		p.note("enable-tls", "for its encoder, give encode URLs that begin with https://")
	}
	p.set("decode", list([]string{scheme + "://localhost:" + g.word(server, "8200")}), g.from(server, "enable-tls", "decoder-use-tls"))
	names := map[string]string{"nixl": "nixl", "nixlv2": "nixl", "shared-storage": "shared-storage", "mooncake": "mooncake", "sglang": "sglang", "offloading": "offloading-p2p"}
	name := g.word(connector, "nixlv2")
	if names[name] == "" {
		return fmt.Errorf("--%s: %q has no equivalent; xpyd speaks %s", connector, name, strings.Join(sorted(names), ", "))
	}
	p.set("connector", names[name], g.from(connector))
	return nil
}

// fitSidecarTLS sets the certificates. The sidecar speaks TLS by default.
func fitSidecarTLS(g given, p *plan) {
	if g.has("metrics-cert-dir") {
		p.pem("admin_tls", g.word("metrics-cert-dir", ""), g.from("metrics-cert-dir"))
	}
	switch secure := !g.has(off("secure-serving")) && !g.has(off("secure-proxy")); {
	case secure && g.has("cert-path"):
		p.pem("tls", g.word("cert-path", ""), g.from("cert-path", "secure-proxy", "secure-serving"))
	case secure:
		flag := "secure-serving"
		if g.has("secure-proxy") {
			flag = "secure-proxy"
		}
		p.note(flag, "there, it is on by default, with a self-signed certificate; xpyd speaks plain HTTP until tls.cert and tls.key are set")
	}
}
