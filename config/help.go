package config

import (
	"strings"

	"xpyd/router"
)

// keyHelp is one line for each key: the help of its flag, its row in docs/configuration.md and
// its comment in configs/default.yaml. `backquoted` words name the value in the help.
var keyHelp = map[string]string{
	"listen":               "`host:port` of the data port; no host means all addresses",
	"admin":                "`host:port` of metrics and pools; empty switches it off",
	"connector":            "`name` of the KV connector that the engines speak",
	"api_keys":             "`key` that clients may show as a bearer token; none set: no key is asked for. Prefer api_key_file: flags show in ps",
	"api_key_file":         "`file` of further client keys, one a line, # starts a comment; mode 0600",
	"backend_api_key":      "`key` sent to the backends in place of the client's Authorization",
	"backend_api_key_file": "`file` that holds backend_api_key; mode 0600",
	"deny_fields":          "top-level request `fields` answered with 400",
	"warmup":               "send one token over each new pair of engines, of pools of more than 16 over 16 an engine, before it gets its share of requests",
	"pprof":                "open /debug/pprof/ on the admin port; heap profiles hold prompts",

	"headers.pass": "request `headers` that go on to the engines, on both legs, beside Authorization, User-Agent, traceparent and tracestate; of several lines the first. X-data-parallel-rank is for those who let clients choose an engine's rank",

	"limits.body":                   "largest request body; a larger one is answered 413",
	"limits.body_budget":            "request bodies held in memory at any moment, all clients together; when spent, 503 with Retry-After; the last eighth is for bodies up to 64 KiB",
	"limits.answer":                 "largest answer held whole: a larger prefill answer is not used, and the decode engine computes the prompt; a larger decode answer is streamed on",
	"limits.answer_budget":          "decode answers held whole at any moment, beyond 64 KiB each; when spent, further ones are streamed on, without the check that they are whole",
	"limits.client_share":           "part of limits.body_budget, and of limits.answer_budget, that one client (API key, or address where none are set) may hold; further bodies get 429; set 1 where all clients come through one balancer and no keys are set",
	"limits.connections_per_ip":     "open connections of one client address; one more is closed unanswered; 0 is no cap",
	"limits.client_in_flight":       "completions that one client (API key, or address where none are set) has at a time; one more gets 429; 0 is no cap",
	"limits.require_content_length": "answer chunked uploads with 411",

	"timeouts.header":              "time for a request head to arrive (408)",
	"timeouts.body":                "time for a request body to arrive (408); each 64 KiB that arrive add 1 s, but never more than this time is left",
	"timeouts.body_stall":          "longest silence inside a request body (408)",
	"timeouts.idle":                "age at which a client's idle connection is closed",
	"timeouts.dial":                "time to connect to a backend",
	"timeouts.prefill":             "time of a whole prefill leg (504)",
	"timeouts.first_event":         "time to the first event of a decode leg, or to its whole answer when not streamed (504)",
	"timeouts.stream_idle":         "longest silence inside a stream",
	"timeouts.request":             "time of a whole request with all its retries (504, or an error event)",
	"timeouts.write_stall":         "how long a client may leave one write unread",
	"timeouts.upstream_idle":       "age at which an idle backend connection is closed; keep it below the engines' keep-alive of 5 s",
	"timeouts.prefill_abort_grace": "how long a prefill may still answer after its client left, so that its blocks can be released",
	"timeouts.decode_abort_grace":  "how long a decode connection stays open after its client left, for engines before vLLM 0.32",
	"timeouts.drain_delay":         "time between not ready and closing the listener on TERM",
	"timeouts.drain":               "time for running requests to end after TERM",

	"kv.lease":            "how long a prefill engine holds blocks for a decode engine that never comes (kv_lease_duration)",
	"kv.lease_margin":     "a handle older than kv.lease less this is not sent; unset: at most a sixth of kv.lease",
	"kv.release":          "`how` an abandoned handle is given back: auto, reject, decode or off",
	"kv.rewrite_loopback": "put the prefill backend's host in place of a loopback remote_host",
	"kv.allow_hosts":      "the only remote_host `values` accepted; none set: any",

	"decode_only.enabled":   "let a decode engine prefill by itself when no prefill can be had",
	"decode_only.max_share": "part of the decode pool's slots that such requests may take; an engine has decode_max_in_flight slots, or 256. Further requests wait for queue.wait. 1 is no cap, 0 allows none",

	"usage.rewrite":          "put the prefill engine's cached_tokens into the last usage",
	"errors.expose_upstream": "relay the text of a backend's 5xx, and of its errors inside a stream",

	"prefill":        "base `URLs` of the prefill engines, repeated or with commas, each with \" weight=2\" behind it where it takes more or less than another; none: a plain balancer over decode",
	"decode":         "base `URLs` of the decode engines, as those of prefill",
	"prefill_policy": "`policy` that picks a prefill engine: " + policyNames(),
	"decode_policy":  "`policy` that picks a decode engine, one of the same; without one prefix where decode computes prompts itself (pd.mode auto or never, pd.threshold_tokens, no prefill engines), else least_request",

	"affinity.headers": "request `headers` that name a session, such as X-Session-ID, the first that a request has; its requests go to the same engines while these have room",

	"queue.length":          "requests that wait in one pool while all of its engines have their *_max_in_flight, or while decode_only.max_share is spent; more get 503",
	"queue.wait":            "longest such wait; then 503",
	"prefill_max_in_flight": "requests at once on one prefill engine; 0 is no cap: vLLM queues by itself",
	"decode_max_in_flight":  "requests at once on one decode engine; 0 is no cap: vLLM queues by itself",

	"pd.mode":             "`mode`: with always each request that can be split is, with never decode engines compute all prompts, with auto each goes the way that is expected to be cheaper",
	"pd.threshold_tokens": "in mode always and auto, a request goes to decode alone that has fewer tokens which the decode engine does not have in its cache; 0: none",

	"health.interval":         "time between two active checks of a backend",
	"health.suspect_interval": "the same of a backend that is not up, or has just failed",
	"health.timeout":          "time of one active check",
	"health.eject_after":      "failures in a row after which a backend is left alone for a while; 0 never. At most half of a pool is",
	"health.eject_for":        "time of a first ejection; the n-th in a row takes n times as long",
	"health.eject_max":        "longest ejection",
	"health.fall":             "failed checks in a row that take a backend down",
	"health.rise":             "passed checks in a row that bring a backend back",
	"health.slow_start":       "time in which a backend that joins or comes back rises to its full share; 0 is off",

	"routing.poll":          "time between two readings of an engine's /metrics, by which the requests of others there count as load, in policies that go by load and in the prices of pd.mode auto; 0 is off, and only what this process sends counts. Pools of more than 256 engines share 256 readings a second",
	"routing.prefix_memory": "memory in which policy prefix keeps who has had which prompts: half of it for each pool of that policy, and for both with pd.mode auto or a threshold; 0 keeps none, and prefix is least_tokens then",

	"log.level":  "`level` from which lines are written: debug, info, warn, error",
	"log.format": "`format` of the lines: json or console",
	"log.flush":  "longest wait of a json line below warn, to be written together with others; what waits is lost in a crash; 0 is off",
}

func policyNames() string { return strings.Join(router.Policies(), ", ") }

func (k key) help() string { return keyHelp[k.path] }
