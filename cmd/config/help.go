package config

import (
	"strings"

	"xpyd/router"
)

// keyHelp has one line for each key. It is the help of the flag, the row in docs/configuration.md
// and the comment in configs/default.yaml. A `backquoted` word names the value in the help.
var keyHelp = map[string]string{
	"listen":               "`host:port` of the data port. Without a host, xpyd listens on all addresses",
	"admin":                "`host:port` of the admin port, for metrics and pools. Empty switches it off",
	"connector":            "`name` of the KV connector, for engines without a connector= of their own",
	"api_keys":             "`key` that clients may send as a bearer token. If none is set, clients need no key. Prefer api_key_file, because flags show in ps",
	"api_key_file":         "`file` of further client keys, one per line, with # for comments. A line name:SHA256 gives a key a name and only its hash. Only its owner may read it (mode 0600), or those whom Kubernetes, Docker or systemd let in",
	"keys_file":            "YAML `file` of client keys with names and limits. Others may read it, because it holds hashes, but only its owner may write it",
	"backend_api_key":      "`key` sent to the backends in place of the client's Authorization",
	"backend_api_key_file": "`file` that holds backend_api_key. Only its owner may read it (mode 0600), or those whom Kubernetes, Docker or systemd let in",
	"admin_token":          "bearer `token` of the admin port, for all of its pages except /livez, /readyz, /health and the empty status page. It is required unless the admin port is on loopback or admin_tls.client_ca is set. Prefer admin_token_file, because flags show in ps",
	"admin_token_file":     "`file` of admin tokens, one a line. A name before a token says in events and in the log who changed something, and read-only after both allows no changes. Only its owner may read it (mode 0600), or those whom Kubernetes, Docker or systemd let in",
	"siblings":             "`URLs` of the admin ports of the other xpyd processes of a service. The status page links to them",
	"deny_fields":          "top-level request `fields` that xpyd answers with 400",
	"warmup":               "send one token over each new pair of engines before it gets its share of requests. In pools of more than 16 engines, each engine is tried with 16 partners",
	"pprof":                "open /debug/pprof/ on the admin port. Heap profiles contain prompts",

	"tls.cert":                "PEM `file` of the data port's certificate, followed by those between it and its CA. With it, clients use https://. xpyd rereads this and the other TLS files when they change",
	"tls.key":                 "PEM `file` of the private key of tls.cert",
	"tls.client_ca":           "PEM `file` of CAs. With it, each client must show a certificate that one of them has signed",
	"admin_tls.cert":          "PEM `file` of the admin port's certificate, which may be the data port's. Without it, the admin port speaks plain HTTP",
	"admin_tls.key":           "PEM `file` of the private key of admin_tls.cert",
	"admin_tls.client_ca":     "PEM `file` of CAs. With it, whoever uses the admin port must show a certificate that one of them has signed",
	"backend_tls.ca":          "PEM `file` of the CAs that have signed the certificates of https:// backends. If empty, the system's CAs apply",
	"backend_tls.cert":        "PEM `file` of the certificate that xpyd shows to backends that ask for one",
	"backend_tls.key":         "PEM `file` of the private key of backend_tls.cert",
	"backend_tls.server_name": "`name` in the certificates of all backends, if it is not the host of their URLs",

	"tracing.endpoint": "`URL` of an OpenTelemetry collector that gets a trace of each request, such as http://127.0.0.1:4317. http:// sends without TLS. If empty, OTEL_EXPORTER_OTLP_ENDPOINT applies. Without either, xpyd traces nothing",
	"tracing.protocol": "`protocol` to the collector: grpc or http/protobuf. If empty, OTEL_EXPORTER_OTLP_PROTOCOL applies, or else grpc",
	"tracing.sample":   "share of the requests to trace. If a request has a traceparent, that decides instead. At 1, OTEL_TRACES_SAMPLER applies if it is set",

	"cors.origins":     "`origins` of web pages that may use the data port, such as https://chat.example.com, or * for all. If empty, browsers let no page of another origin use it",
	"cors.credentials": "let these pages send cookies and client certificates. API keys do not need this",

	"proxy_protocol.from": "`addresses` or networks of balancers, such as 10.0.0.0/8, whose connections to the data port begin with a PROXY protocol header, version 2. The client's address is then the one in the header. xpyd closes a connection from these addresses that has no header",

	"headers.pass": "request `headers` that xpyd passes on to the engines in both legs, in addition to Authorization, User-Agent, traceparent, tracestate, Anthropic-Version and Anthropic-Beta. If a header occurs twice, xpyd passes on the first one only. Add X-data-parallel-rank only if clients may choose an engine's rank",

	"headers.timing":   "tell clients in Server-Timing how long a completion was queued, and how long prefill, handoff and first token took",
	"headers.backends": "tell clients in X-Xpyd-Prefill and X-Xpyd-Decode which engines served a completion",

	"routes.pass": "further `paths` that xpyd relays to one engine, such as /v2/embed. Write GET before the path of a GET. xpyd does not retry these requests. It refuses routes that operate an engine",

	"limits.body":                   "largest request body. A larger one gets 413",
	"limits.body_budget":            "memory for request bodies of all clients together. When it is spent, requests get 503 with Retry-After. The last eighth is for bodies up to 64 KiB. If not set, at most a quarter of the cgroup's memory limit",
	"limits.answer":                 "largest answer that xpyd holds whole. If a prefill answer is larger, xpyd does not use it, and the decode engine computes the prompt. If a decode answer is larger, xpyd streams it",
	"limits.answer_budget":          "memory for whole decode answers and for events of streams, beyond 64 KiB for each. When it is spent, xpyd streams further answers without checking that they are complete, and breaks off a stream whose event has no room. If not set, at most a sixteenth of the cgroup's memory limit",
	"limits.client_share":           "share of limits.body_budget, and of limits.answer_budget, that one client may hold. A client is an API key, or an address if no keys are set. Further bodies get 429. Set 1 if all clients come through one balancer and no keys are set",
	"limits.connections_per_ip":     "most open connections from one client address, or from one IPv6 /64. xpyd closes further ones without an answer. 0 means no cap",
	"limits.client_in_flight":       "most completions and relayed requests that one client may run at a time. A client is an API key, or an address if no keys are set. Further ones get 429. 0 means no cap",
	"limits.require_content_length": "answer chunked uploads with 411",

	"timeouts.header":              "how long a request head may take to arrive (408)",
	"timeouts.body":                "how long a request body may take to arrive (408). Each 64 KiB that arrives adds 1 s. The remaining time is never more than this value",
	"timeouts.body_stall":          "longest silence inside a request body (408)",
	"timeouts.idle":                "how long a client's connection may be idle before xpyd closes it",
	"timeouts.dial":                "how long connecting to a backend may take",
	"timeouts.handshake":           "how long the TLS handshake with an https:// backend may take, once the connection is made",
	"timeouts.encode":              "how long all encode requests of a completion may take, with their retries. Then the next engine encodes what is left",
	"timeouts.prefill":             "how long a whole prefill leg may take (504)",
	"timeouts.first_event":         "how long the first event of a decode leg may take, or the whole answer if it is not streamed (504)",
	"timeouts.stream_idle":         "longest silence inside a stream",
	"timeouts.request":             "how long a whole request may take with all its retries (504, or an error event)",
	"timeouts.write_stall":         "how long a client may take to read one write before xpyd cuts it off",
	"timeouts.upstream_idle":       "how long a backend connection may be idle before xpyd closes it. Keep it below the engines' keep-alive of 5 s",
	"timeouts.prefill_abort_grace": "how long a prefill may still answer after its client left, so that xpyd can release its blocks. xpyd waits up to three times as long if it expects the prefill to end soon, and not at all if it expects it to take more than twice as long",
	"timeouts.decode_abort_grace":  "how long a decode connection stays open after its client left, for engines older than vLLM 0.32",
	"timeouts.drain_delay":         "after TERM, how long xpyd reports that it is not ready before it closes the listener",
	"timeouts.drain":               "after TERM, how long running requests may take to end",

	"kv.lease":             "how long a prefill engine holds blocks for a decode engine that never comes (kv_lease_duration)",
	"kv.lease_margin":      "xpyd does not send a handle that is older than kv.lease minus this margin, counted from the first byte of the prefill's answer. Default: 5s, or a sixth of kv.lease if that is less",
	"kv.release":           "`how` xpyd gives an abandoned handle back: auto, reject, decode or off",
	"kv.rewrite_loopback":  "replace a loopback remote_host with the prefill backend's host, and a loopback peer_host with the encode backend's",
	"kv.reuse_tokens_from": "`size` of a chat's prompt from which the prefill engine's token ids go to the decode engine, which then does not tokenise (nixl and nixl-push, vLLM 0.32 or later). 0: never",
	"kv.transfer_gbps":     "`GB/s` (10⁹ bytes) that a KV transfer reaches at least if it takes the link that it should, such as half of what check --bandwidth measures. Below it, the alert XpydTransfersSlow fires and check --bandwidth fails. 0: not known",
	"kv.allow_hosts":       "the only `values` of remote_host that xpyd accepts. If empty, it accepts any",

	"decode_only.enabled":   "let a decode engine compute the prompt itself when no prefill engine is available",
	"decode_only.max_share": "share of the decode pool's slots that requests without a prefill engine may take. Each decode engine counts as decode_max_in_flight slots, or as 256 if that is 0. Further requests wait for queue.wait. 1 means no cap, 0 allows none",

	"carry.max":    "how often another decode engine continues a stream whose engine fails (experimental); a second death ends it. 0: never",
	"carry.stream": "most kept of a stream for that, about 6 bytes a token",
	"carry.memory": "most kept of all streams",

	"usage.rewrite":          "put the prefill engine's cached_tokens into the last usage of an answer",
	"errors.expose_upstream": "pass on the text of a backend's 5xx, and of its errors inside a stream",

	"prefill":        "base `URLs` of the prefill engines, http:// or https://, repeated or separated by commas. A path in a URL goes before the path of each request. Options after a URL: \" weight=2\" is its share, \" gpus=4\" its number of GPUs, \" bootstrap=8998\" a port of its connector, \" connector=mooncake\" its own connector, \" state=drain\" or \" state=disabled\" keeps requests from it. \"@0..7\" at its end names data-parallel ranks, \"@auto\" all that the engine has. Without prefill engines, xpyd is a plain balancer over decode",
	"decode":         "base `URLs` of the decode engines, written like those of prefill",
	"encode":         "base `URLs` of the engines that encode images, audio and video before the prefill, written like those of prefill (experimental; docs/encode.md). Text requests skip them. Without encode engines, prefill engines encode",
	"engines":        "base `URLs` of engines without a role (kv_role kv_both; flag --engine), written like those of prefill. Such an engine may compute the prompt of one request, write the answer of another, and serve a third whole, as pd.mode says. It may be in no other list",
	"prefill_policy": "`policy` that picks a prefill engine: " + policyNames(),
	"decode_policy":  "`policy` that picks a decode engine, with the same choices as prefill_policy. If empty, it is prefix if decode engines compute prompts themselves (pd.mode auto or never, pd.threshold_tokens, no prefill engines), and otherwise least_request",

	"affinity.headers": "request `headers` that name a session, such as X-Session-ID. If a request has several, the first in this list counts. Requests of one session go to the same engines while these have room",

	"queue.length":          "most requests that may wait in one pool while all of its engines are at their *_max_in_flight, or while decode_only.max_share is spent. If one more comes, queue.wait is over at once for the newest of the key, or else of the address, that has most of them",
	"queue.wait":            "how long a request may wait in the queue. After that, it gets 503, or a decode engine computes its prompt if only the prefill pool is full and decode_only allows it",
	"encode_max_in_flight":  "most requests at a time on one encode engine. 0 means no cap",
	"prefill_max_in_flight": "most requests at a time on one prefill engine. 0 means no cap, so vLLM does the queueing",
	"decode_max_in_flight":  "most requests at a time on one decode engine. 0 means no cap, so vLLM does the queueing",

	"pd.mode":             "`mode`: \"always\" splits each request that can be split, \"never\" leaves all prompts to the decode engines, \"auto\" sends each request the way that xpyd expects to be cheaper",
	"pd.threshold_tokens": "in modes always and auto, a request goes to decode alone if fewer of its tokens than this are missing from the decode engine's cache. 0 switches it off",
	"pd.stall_weight":     "in mode auto, how much one second of pause in a running answer counts compared with one second of waiting for a first token, from 0 to 100. With a higher weight, xpyd splits more requests: answers pause less, but first tokens come later",

	"state_file": "`file` that keeps changes made at run time over the admin port: backends that were added, removed, drained or weighted. Its changes survive a restart and a hand-over. Give each process its own file. If empty, changes end with the process",

	"health.interval":          "time between two active checks of a backend",
	"health.suspect_interval":  "time between two active checks of a backend that is not up or has just failed; however many legs fail, checks are at least so far apart",
	"health.timeout":           "how long one active check may take",
	"health.eject_after":       "failures in a row after which a backend gets no requests for a while. 0 means never. xpyd ejects at most half of a pool at a time",
	"health.eject_for":         "length of the first ejection. The n-th in a row is n times as long",
	"health.eject_max":         "longest ejection",
	"health.fall":              "failed checks in a row that take a backend down",
	"health.rise":              "passed checks in a row that bring a backend back",
	"health.progress_floor":    "least time for which an engine that owes answers may give none, until it is wedged. The limit is three times what is usual for it. From half of the limit on, xpyd asks it for one token on a connection of its own, and it is wedged only if that does not come either. 0 switches it off",
	"health.progress_ceiling":  "most of that time, and what counts until xpyd knows what is usual",
	"health.wedged_down_after": "how long a wedged engine, which requests pass over, stays like that until it is down and its streams end",
	"health.slow_after":        "how long an engine works at a third of its peers' speed or less, until it is slow and gets as much work as its speed allows. 0 switches it off",
	"health.slow_eject":        "eject slow engines instead",
	"objective.ttft":           "time until the first token that nine of ten streams reach. An alert fires if they do not. 0: none does",
	"objective.tpot":           "the same for the mean time between two tokens of a stream",
	"objective.errors":         "share of the completions that may fail, over a month, at most 0.069. Alerts fire if that is spent too fast",
	"health.slow_start":        "time in which the share of a backend that joins or comes back rises to its full value. 0 switches it off",

	"routing.poll":             "time between two readings of an engine's /metrics. Policies that go by load, and the prices of pd.mode auto, then include requests that others send to the engine. If 0, xpyd does not read, and counts only what this process sends. xpyd makes at most 256 readings a second, so with more engines it reads each one less often",
	"routing.kv_events_memory": "memory for what the KV events of all engines say of their blocks (kv_events after an engine's URL), 64 bytes a block. Each engine may use the same part of it",
	"routing.prefix_block":     "bytes of a prompt in a block of that record, as llm-d's hashBlockSize; about 4 bytes are a token. Smaller blocks tell prompts apart that begin alike for less, and take more memory. All replicas need the same value",
	"routing.prefix_memory":    "memory in which policy prefix records which engine has had which prompts. Each pool with policy prefix uses half of it. With pd.mode auto or pd.threshold_tokens, both pools do. If 0, xpyd records nothing, and prefix works like least_tokens. If not set, at most a sixteenth of the cgroup's memory limit",

	"log.level":  "lowest `level` of the lines that xpyd writes: debug, info, warn, error",
	"log.format": "`format` of the lines: json or console",
	"log.flush":  "how long a json line below warn may wait to be written together with others. A crash loses the lines that wait. 0 switches it off",
}

func policyNames() string { return strings.Join(router.Policies(), ", ") }

func (k key) help() string { return keyHelp[k.path] }
