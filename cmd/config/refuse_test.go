package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"xpyd/kvparams"
	"xpyd/router"
)

func TestConfigRefusals(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string // --decode is added unless noDecode
		environ []string
		want    string
	}{
		{"dial zero", []string{"--timeouts-dial=0s"}, nil,
			`config: timeouts.dial: "0s" must be above 0; try 1s (flag --timeouts-dial, XPYD_TIMEOUTS_DIAL)`},
		{"negative", nil, []string{"XPYD_TIMEOUTS_DRAIN=-1s"},
			`config: timeouts.drain: "-1s" must not be below 0; try 5m (flag --timeouts-drain, XPYD_TIMEOUTS_DRAIN)`},
		{"upstream idle zero", []string{"--timeouts-upstream-idle=0"}, nil,
			`config: timeouts.upstream_idle: "0s" must be above 0; try 4s (flag --timeouts-upstream-idle, XPYD_TIMEOUTS_UPSTREAM_IDLE)`},
		{"duration without unit", []string{"--timeouts-dial=5"}, nil,
			`config: timeouts.dial: "5" lacks a unit; try 5s or 5ms (flag --timeouts-dial, XPYD_TIMEOUTS_DIAL)`},
		{"no duration", nil, []string{"XPYD_KV_LEASE="},
			`config: kv.lease: "" is no duration; try 1s, 250ms or 5m (flag --kv-lease, XPYD_KV_LEASE)`},
		{"negative without unit", []string{"--timeouts-request=-1"}, nil,
			`config: timeouts.request: "-1s" must be above 0; try 1h (flag --timeouts-request, XPYD_TIMEOUTS_REQUEST)`},
		{"a little below zero", []string{"--timeouts-drain=-1e-20"}, nil,
			`config: timeouts.drain: "-1ns" must not be below 0; try 5m (flag --timeouts-drain, XPYD_TIMEOUTS_DRAIN)`},
		{"no failure takes down", []string{"--health-fall=0"}, nil,
			`config: health.fall: "0" must be above 0; try 3 (flag --health-fall, XPYD_HEALTH_FALL)`},
		{"no success brings back", nil, []string{"XPYD_HEALTH_RISE=0"},
			`config: health.rise: "0" must be above 0; try 2 (flag --health-rise, XPYD_HEALTH_RISE)`},
		{"size", []string{"--limits-body=32MB"}, nil,
			`config: limits.body: "32MB" is no size; try 33554432, 32MiB or 1GiB (flag --limits-body, XPYD_LIMITS_BODY)`},
		{"size beyond int64", []string{"--limits-body=99999999999GiB"}, nil,
			`config: limits.body: "99999999999GiB" is no size; try 33554432, 32MiB or 1GiB (flag --limits-body, XPYD_LIMITS_BODY)`},
		{"size zero", []string{"--limits-answer=0"}, nil,
			`config: limits.answer: "0" must be above 0; try 8MiB (flag --limits-answer, XPYD_LIMITS_ANSWER)`},
		{"budget below a body", []string{"--limits-body-budget=1MiB"}, nil,
			`config: limits.body_budget: "1MiB" must hold one body of limits.body, 32MiB (flag --limits-body-budget, XPYD_LIMITS_BODY_BUDGET)`},
		{"an origin with a path", []string{"--cors-origins=https://a.example/chat"}, nil,
			`config: cors.origins: "https://a.example/chat" is no origin as browsers send it: scheme, host and port where it is not the usual one, in lower case; try https://chat.example.com or http://localhost:3000 (flag --cors-origins, XPYD_CORS_ORIGINS)`},
		{"all pages with credentials", []string{"--cors-origins=*", "--cors-credentials"}, nil,
			`config: cors.origins: "*" lets every page of the web in, which browsers refuse together with cors.credentials; name the origins (flag --cors-origins, XPYD_CORS_ORIGINS)`},
		{"a collector without a scheme", []string{"--tracing-endpoint=c:4317"}, nil,
			`config: tracing.endpoint: "c:4317" must be a URL with http:// or https://; try http://127.0.0.1:4317 (grpc) or http://127.0.0.1:4318 (http/protobuf) (flag --tracing-endpoint, XPYD_TRACING_ENDPOINT)`},
		{"a collector's password", []string{"--tracing-endpoint=http://u:p@c:4317"}, nil,
			`config: tracing.endpoint: "http://c:4317" must hold no user, password or query; give what the collector asks for in OTEL_EXPORTER_OTLP_HEADERS (flag --tracing-endpoint, XPYD_TRACING_ENDPOINT)`},
		{"a protocol of old", []string{"--tracing-protocol=http"}, nil,
			`config: tracing.protocol: "http" must be one of grpc, http/protobuf (flag --tracing-protocol, XPYD_TRACING_PROTOCOL)`},
		{"a sample in percent", []string{"--tracing-sample=10"}, nil,
			`config: tracing.sample: "10" must be from 0 to 1; try 0.01 (flag --tracing-sample, XPYD_TRACING_SAMPLE)`},
		{"a balancer by name", []string{"--proxy-protocol-from=10.0.0.0/8,lb.example"}, nil,
			`config: proxy_protocol.from: "lb.example" is no address or network; try 10.0.0.7 or 10.0.0.0/8 (flag --proxy-protocol-from, XPYD_PROXY_PROTOCOL_FROM)`},
		{"count", []string{"--limits-connections-per-ip=many"}, nil,
			`config: limits.connections_per_ip: "many" must be a whole number (flag --limits-connections-per-ip, XPYD_LIMITS_CONNECTIONS_PER_IP)`},
		{"bool", []string{"--pprof=maybe"}, nil,
			`config: pprof: "maybe" must be true or false (flag --pprof, XPYD_PPROF)`},
		{"share", []string{"--decode-only-max-share=1.5"}, nil,
			`config: decode_only.max_share: "1.5" must be from 0 to 1; try 1 (flag --decode-only-max-share, XPYD_DECODE_ONLY_MAX_SHARE)`},
		{"share not a number", []string{"--decode-only-max-share=NaN"}, nil,
			`config: decode_only.max_share: "NaN" must be from 0 to 1; try 1 (flag --decode-only-max-share, XPYD_DECODE_ONLY_MAX_SHARE)`},
		{"weight of a stall", []string{"--pd-stall-weight=101"}, nil,
			`config: pd.stall_weight: "101" must be from 0 to 100; try 1 (flag --pd-stall-weight, XPYD_PD_STALL_WEIGHT)`},
		{"errors that no alert tells", []string{"--objective-errors=0.07"}, nil,
			`config: objective.errors: "0.07" must be from 0 to 0.069, as the fast alert fires at 14.4 times it; try 0.001 (flag --objective-errors, XPYD_OBJECTIVE_ERRORS)`},
		{"no share of a client", []string{"--limits-client-share=0"}, nil,
			`config: limits.client_share: "0" must be above 0 and up to 1; try 0.5 (flag --limits-client-share, XPYD_LIMITS_CLIENT_SHARE)`},
		{"margin", []string{"--kv-lease=3s", "--kv-lease-margin=3s"}, nil,
			`config: kv.lease_margin: "3s" must be below kv.lease, 3s; try 500ms (flag --kv-lease-margin, XPYD_KV_LEASE_MARGIN)`},
		{"longest ejection below the first", []string{"--health-eject-max", "10s"}, nil,
			`config: health.eject_max: "10s" must not be below health.eject_for, 30s (flag --health-eject-max, XPYD_HEALTH_EJECT_MAX)`},
		{"prefix memory of a byte", []string{"--routing-prefix-memory=1"}, nil,
			`config: routing.prefix_memory: "1" must be 0, or at least 1MiB (flag --routing-prefix-memory, XPYD_ROUTING_PREFIX_MEMORY)`},
		{"blocks of a few bytes", []string{"--routing-prefix-block=5"}, nil,
			`config: routing.prefix_block: "5" must be 64 to 64KiB (flag --routing-prefix-block, XPYD_ROUTING_PREFIX_BLOCK)`},
		{"release", []string{"--kv-release=never"}, nil,
			`config: kv.release: "never" must be one of auto, reject, decode, off (flag --kv-release, XPYD_KV_RELEASE)`},
		{"policy", []string{"--decode-policy=fastest"}, nil,
			`config: decode_policy: "fastest" must be one of ` + strings.Join(router.Policies(), ", ") + ` (flag --decode-policy, XPYD_DECODE_POLICY)`},
		{"affinity header", []string{"--affinity-headers=X-Session-ID,session id"}, nil,
			`config: affinity.headers: "session id" is no name of a header; try X-Session-ID (flag --affinity-headers, XPYD_AFFINITY_HEADERS)`},
		{"affinity header of another alphabet", []string{"--affinity-headers=X-Séance"}, nil,
			`config: affinity.headers: "X-Séance" is no name of a header; try X-Session-ID (flag --affinity-headers, XPYD_AFFINITY_HEADERS)`},
		{"affinity header with a colon", []string{"--affinity-headers=X-Session-ID:"}, nil,
			`config: affinity.headers: "X-Session-ID:" is no name of a header; try X-Session-ID (flag --affinity-headers, XPYD_AFFINITY_HEADERS)`},
		{"connector", []string{"--connector=nixlv3"}, nil,
			`config: connector: "nixlv3" must be one of ` + strings.Join(kvparams.Names(), ", ") + ` (flag --connector, XPYD_CONNECTOR)`},
		{"log format", []string{"--log-format=xml"}, nil,
			`config: log.format: "xml" must be one of json, console (flag --log-format, XPYD_LOG_FORMAT)`},
		{"log level", []string{"--log-level=loud"}, nil,
			`config: log.level: "loud" must be one of debug, info, warn, error (flag --log-level, XPYD_LOG_LEVEL)`},
		{"listen by its port", []string{"--listen=18080"}, nil,
			`config: listen: "18080" must be host:port; try :18080 (flag --listen, XPYD_LISTEN)`},
		{"listen without port", []string{"--listen=localhost"}, nil,
			`config: listen: "localhost" must be host:port; try :8080 (flag --listen, XPYD_LISTEN)`},
		{"listen port", []string{"--listen=:65536"}, nil,
			`config: listen: ":65536" must end in a port, 0 to 65535; try :8080 (flag --listen, XPYD_LISTEN)`},
		{"admin is listen", []string{"--admin=:8080"}, nil,
			`config: admin: ":8080" is the data port too; give it a port of its own (flag --admin, XPYD_ADMIN)`},
		{"empty client key", nil, []string{"XPYD_API_KEYS="},
			`config: api_keys is set but empty; give a key or leave it unset (flag --api-key, XPYD_API_KEYS)`},
		{"client key with a space", []string{"--api-key=good", "--api-key", "sesame open"}, nil,
			`config: api_keys: key 2 holds a space or a character that no header carries; use visible ASCII (flag --api-key, XPYD_API_KEYS)`},
		{"client key list with a hole", []string{"--api-key=sesame,,x"}, nil,
			`config: api_keys: has an empty entry; remove it (flag --api-key, XPYD_API_KEYS)`},
		{"backend key with a line break", []string{"--backend-api-key", "sesame\r\nX: y"}, nil,
			`config: backend_api_key: holds a space or a character that no header carries; use visible ASCII (flag --backend-api-key, XPYD_BACKEND_API_KEY)`},
		{"no such file", []string{"--config=/nonexistent/x.yaml"}, nil,
			`config: /nonexistent/x.yaml: no such file or directory`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, append(slices.Clone(tc.args), decodeFlag...), tc.environ)
			checkUsage(t, err, tc.want)
		})
	}
}

// checkUsage wants exactly this one line, as a UsageError, without any secret.
func checkUsage(t *testing.T, err error, want string) {
	t.Helper()
	var usage UsageError
	switch {
	case err == nil:
		t.Fatalf("no error, want %s", want)
	case !errors.As(err, &usage):
		t.Errorf("%T is no UsageError", err)
	}
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), "sesame") {
		t.Errorf("%q must be one line without a secret", err)
	}
}

func TestConfigRefusesURLs(t *testing.T) {
	const names = " (flag --prefill, XPYD_PREFILL)"
	for _, tc := range []struct{ url, want string }{
		{"localhost:8100", `"localhost:8100" must start with http:// or https://; try http://localhost:8100`},
		{"https://a:1/v1", `"https://a:1/v1" must end before /v1; the routes are added`},
		{"ftp://a:1", `"ftp://a:1" must start with http:// or https://; try http://127.0.0.1:8100`},
		{"http://", `"http://" lacks a host; try http://127.0.0.1:8100`},
		{"http://:8100", `"http://:8100" lacks a host; try http://127.0.0.1:8100`},
		{"http://a:0", `"http://a:0" must have a port from 1 to 65535; try http://127.0.0.1:8100`},
		{"http://a:", `"http://a:" must have a port from 1 to 65535; try http://127.0.0.1:8100`},
		{"http://a:70000", `"http://a:70000" must have a port from 1 to 65535; try http://127.0.0.1:8100`},
		{"http://a:x", `"http://a:x" is no URL; try http://127.0.0.1:8100`},
		{"http://a:1/b/v1/", `"http://a:1/b/v1/" must end before /v1; the routes are added`},
		{"http://a:1/?key=sesame", `"http://a:1/" must have no query and no fragment; the routes are added`},
		{"http://a:1/b/../c", `"http://a:1/b/../c" must have a path of letters, digits and -._~ between single slashes, or none; try http://127.0.0.1:8100/vllm-a`},
		{"http://a:1/b//", `"http://a:1/b//" must have a path of letters, digits and -._~ between single slashes, or none; try http://127.0.0.1:8100/vllm-a`},
		{"http://a:1/%41", `"http://a:1/%41" must have a path of letters, digits and -._~ between single slashes, or none; try http://127.0.0.1:8100/vllm-a`},
		{"http://a:1/b,http://A:1/b/", `"http://a:1/b" is listed twice; remove one`},
		{"http://me:sesame@a:1", `"http://a:1" must hold no user or password; use --backend-api-key-file`},
		{"me:sesame@a:1", `"a:1" must start with http:// or https://; try http://a:1`},
		{"http://a:1,http://A:1/", `"http://a:1" is listed twice; remove one`},
		{"http://a:1 weight=2,http://a:1", `"http://a:1" is listed twice; remove one`},
		{"http://a:1 weight=0", `"http://a:1 weight=0" must have one weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 weight=-1", `"http://a:1 weight=-1" must have one weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 weight=heavy", `"http://a:1 weight=heavy" must have one weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1  weight=NaN", `"http://a:1 weight=NaN" must have one weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 weight=2 http://me:sesame@b:1", `"http://a:1 weight=2" has an unknown option "http://b:1"; allowed: weight=NUMBER, gpus=NUMBER, bootstrap=PORT, connector=NAME, kv_events=ADDRESS, kv_replay=ADDRESS, state=STATE`},
		{"http://a:1 gpus=two", `"http://a:1 gpus=two" must have one number of GPUs from 0.01 to 4096; try http://a:1 gpus=4`},
		{"http://a:1 weight=http://me:sesame@b:1", `"http://a:1 weight=http://b:1" must have one weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 wieght=2", `"http://a:1" has an unknown option "wieght=2"; allowed: weight=NUMBER, gpus=NUMBER, bootstrap=PORT, connector=NAME, kv_events=ADDRESS, kv_replay=ADDRESS, state=STATE`},
		{"http://a:1 weight=2 weight=3", `"http://a:1 weight=2 weight=3" must have one weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://A:1@0..3 weight=999", `"http://A:1@0..3 weight=999" must have one weight from 0.01 to 100; try http://A:1@0..3 weight=2`},
		{"http://127.0.0.1:18200@0..x", `"http://127.0.0.1:18200@0..x" must have ranks from 0 to 1023, the lower first; try http://127.0.0.1:8100@0..7`},
		{"http://h:1@3x", `"http://h:1@3x" must have a rank, a range such as 0..7, or auto after @, and must hold no user or password`},
	} {
		t.Run(tc.url, func(t *testing.T) {
			_, err := load(t, append([]string{"--prefill", tc.url}, decodeFlag...), nil)
			checkUsage(t, err, "config: prefill: "+tc.want+names)
		})
	}
	t.Run("no decode", func(t *testing.T) {
		_, err := load(t, []string{"--prefill", "http://a:1"}, nil)
		checkUsage(t, err, `config: decode: needs at least one backend; try --decode http://127.0.0.1:8200, or --engine for one without a role (flag --decode, XPYD_DECODE)`)
	})
}

func TestConfigRefusesFiles(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"unknown key", "timeouts:\n  stream_idel: 1s\n", "timeouts.stream_idel is no known key; the nearest is timeouts.stream_idle"},
		{"unknown section", "timeout:\n  dial: 1s\n", "timeout.dial is no known key; the nearest is timeouts.dial"},
		{"unknown without value", "decod:\n", "decod is no known key; the nearest is decode"},
		{"unknown beside the key that it begins with", "decode_polcy: random\n", "decode_polcy is no known key; the nearest is decode_policy"},
		{"unknown that begins with a key", "prefill_weight: 2\n", "prefill_weight is no known key; the nearest is prefill"},
		{"section and half a key", "decode_only.max: 1\n", "decode_only.max is no known key; the nearest is decode_only.max_share"},
		{"key without its section", "stream_idle: 1s\n", "stream_idle is no known key; the nearest is timeouts.stream_idle"},
		{"nothing near", "replicas: 3\n", "replicas is no known key; xpyd serve --help lists all"},
		{"nothing near in a section", "timeouts:\n  proxy_protocol: 1s\n", "timeouts.proxy_protocol is no known key; xpyd serve --help lists all"},
		{"key under a value", "listen:\n  port: 1\n", "listen.port is no known key; the nearest is listen"},
		{"value for a section", "kv: 30s\n", "kv holds one value and must hold keys, such as kv.lease"},
		{"number for a text", "state_file: 8080\n", `state_file: "8080" must be a text; put it in quotes (flag --state-file, XPYD_STATE_FILE)`},
		{"port for an address", "listen: 18080\n", `listen: "18080" must be host:port; try :18080 (flag --listen, XPYD_LISTEN)`},
		{"port for the admin address", "admin: 18081\n", `admin: "18081" must be host:port; try 127.0.0.1:18081 (flag --admin, XPYD_ADMIN)`},
		{"number that is no port", "listen: 180800\n", `listen: "180800" must be host:port; try :8080 (flag --listen, XPYD_LISTEN)`},
		{"bool for a name", "log: {format: true}\n", `log.format: "true" must be one of json, console (flag --log-format, XPYD_LOG_FORMAT)`},
		{"list for a text", "prefill_policy: [prefix]\n", `prefill_policy: "[prefix]" must be one value, not a list (flag --prefill-policy, XPYD_PREFILL_POLICY)`},
		{"second document", "listen: ':1'\n---\nprefill: [http://a:1]\n", "line 3 is in a second YAML document, and only one is read; remove the --- above it"},
		{"second document after an empty one", "---\n# nothing\n---\nlisten: ':1'\n", "line 4 is in a second YAML document, and only one is read; remove the --- above it"},
		{"second value of JSON syntax", "{\"listen\": \":1\"}\n--- {}\n", "line 2 is in a second YAML document, and only one is read; remove the --- above it"},
		{"number in a list", "deny_fields: [1]\n", "deny_fields: must be a list of texts; put each in quotes (flag --deny-fields, XPYD_DENY_FIELDS)"},
		{"list for a duration", "timeouts: {dial: [1s]}\n", `timeouts.dial: "[1s]" must be one value, a duration (flag --timeouts-dial, XPYD_TIMEOUTS_DIAL)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := writeFile(t, "x.yaml", tc.text, 0o644)
			_, err := load(t, append([]string{"--config", file}, decodeFlag...), nil)
			want := "config: " + tc.want
			if !strings.Contains(tc.want, "flag --") {
				want = "config: " + file + ": " + tc.want
			}
			checkUsage(t, err, want)
		})
	}
	for name, text := range map[string]string{
		"broken YAML": "timeouts: [", "broken second document": "listen: ':1'\n---\n[\n", "doubled key": "listen: ':1'\nlisten: ':2'\n", "no map": "- a\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := writeFile(t, "x.yaml", text, 0o644)
			_, err := load(t, append([]string{"--config", file}, decodeFlag...), nil)
			if err == nil || !strings.HasPrefix(err.Error(), "config: "+file+": yaml: ") {
				t.Fatalf("got %v, want an error that names the file and what does not read it", err)
			}
			checkUsage(t, err, err.Error()) // its text is the YAML reader's
		})
	}
}
