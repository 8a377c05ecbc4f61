package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"xpyd/router"
)

// load runs Load as a command would, after parsing args.
func load(t *testing.T, args, environ []string) (Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("xpyd", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return Load(t.Context(), NewFiles(false), fs, environ)
}

func writeFile(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

var decodeFlag = []string{"--decode", "http://127.0.0.1:8200"}

func TestConfigPrecedence(t *testing.T) {
	file := writeFile(t, "x.yaml", "decode: [http://f:1]\ntimeouts:\n  dial: 2s\n  prefill: 7s\n  drain: 9s\n", 0o644)
	c, err := load(t,
		[]string{"--config", file, "--timeouts-dial", "4s"},
		[]string{"XPYD_TIMEOUTS_DIAL=3s", "XPYD_TIMEOUTS_PREFILL=8s", "HOME=/"})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Timeouts.Dial, want.Timeouts.Prefill, want.Timeouts.Drain = 4*time.Second, 8*time.Second, 9*time.Second
	if c.Timeouts != want.Timeouts {
		t.Errorf("flag > environment > file > default: got %+v, want %+v", c.Timeouts, want.Timeouts)
	}
	if !slices.Equal(c.Router.Decode, []string{"http://f:1"}) {
		t.Errorf("decode = %q", c.Router.Decode)
	}
}

// Each key is set once by its flag and once by its variable; both must arrive.
func TestConfigEveryKeyHasFlagAndVariable(t *testing.T) {
	secret := writeFile(t, "key", "k1\n", 0o600)
	values := map[string]string{
		"string": "x", "duration": "1234ms", "size": "77MiB", "count": "17", "share": "0.5", "bool": "true", "list": "a,b",
		"listen": "127.0.0.1:9", "admin": "127.0.0.1:10", "connector": "nixl", "prefill_policy": "round_robin", "decode_policy": "round_robin",
		"pd.mode": "auto", "kv.release": "reject", "log.level": "debug", "log.format": "console", "api_key_file": secret, "backend_api_key_file": secret,
		"prefill": "http://a:1,http://b:2", "decode": "http://a:1,http://b:2", "limits.body_budget": "2GiB",
		"health.eject_for": "2m", "health.eject_max": "1h",
		"decode_only.enabled": "false", "usage.rewrite": "false",
	}
	for _, k := range configKeys() {
		t.Run(k.path, func(t *testing.T) {
			v, ok := values[k.path]
			if !ok {
				v = values[k.unit()]
			}
			for _, given := range []struct{ args, environ []string }{
				{args: []string{"--" + k.flag() + "=" + v}},
				{environ: []string{k.env() + "=" + v}},
			} {
				args := given.args
				if k.path != "decode" {
					args = append(args, decodeFlag...)
				}
				c, err := load(t, args, given.environ)
				if err != nil {
					t.Fatal(err)
				}
				want := Config{}
				if err := k.set(&want, v); err != nil {
					t.Fatal(err)
				}
				if got, want := k.text(c), k.text(want); got != want {
					t.Errorf("%v %v: got %s, want %s", given.args, given.environ, got, want)
				}
			}
		})
	}
}

func TestConfigValues(t *testing.T) {
	for _, tc := range []struct {
		name, path string
		args       []string
		environ    []string
		file       string
		want       string
	}{
		{"repeated flag and commas", "prefill", []string{"--prefill", "http://a:1, http://b:2", "--prefill", "http://c:3"}, nil, "", "http://a:1,http://b:2,http://c:3"},
		{"list in the environment", "prefill", nil, []string{"XPYD_PREFILL=http://a:1,http://b:2"}, "", "http://a:1,http://b:2"},
		{"empty list in the environment", "prefill", nil, []string{"XPYD_PREFILL="}, "prefill: [http://a:1]", ""},
		{"weights", "prefill", []string{"--prefill", "http://A:1/  weight=2.50,http://b:2 weight=1"}, nil, "", "http://a:1 weight=2.5,http://b:2"},
		{"weights in the environment", "prefill", nil, []string{"XPYD_PREFILL=http://a:1 weight=2,http://b:2"}, "", "http://a:1 weight=2,http://b:2"},
		{"weights in the file", "prefill", nil, nil, "prefill: ['http://a:1 weight=0.5', 'http://b:2']", "http://a:1 weight=0.5,http://b:2"},
		{"port 80 by default", "prefill", []string{"--prefill", "http://A.example/"}, nil, "", "http://a.example:80"},
		{"IPv6", "prefill", []string{"--prefill", "http://[::1]:8100"}, nil, "", "http://[::1]:8100"},
		{"size in MiB", "limits.body", nil, nil, "limits: {body: 16MiB}", "16MiB"},
		{"size in plain bytes", "limits.body", nil, nil, "limits: {body: 1000}", "1000"},
		{"share", "decode_only.max_share", nil, nil, "decode_only: {max_share: 1}", "1"},
		{"bool flag without value", "pprof", []string{"--pprof"}, nil, "", "true"},
		{"section without keys", "timeouts.dial", nil, nil, "timeouts:\n", "1s"},
		{"key without value", "timeouts.dial", nil, nil, "timeouts:\n  dial:\n", "1s"},
		{"admin off", "admin", nil, []string{"XPYD_ADMIN="}, "", ""},
		{"release off is a text in YAML", "kv.release", nil, nil, "kv: {release: off}", "off"},
		{"short lease shortens the margin", "kv.lease_margin", nil, []string{"XPYD_KV_LEASE=600ms"}, "", "100ms"},
		{"long lease keeps the margin", "kv.lease_margin", nil, []string{"XPYD_KV_LEASE=10m"}, "", "5s"},
		{"margin given", "kv.lease_margin", nil, []string{"XPYD_KV_LEASE=6s", "XPYD_KV_LEASE_MARGIN=5s"}, "", "5s"},
		{"Kubernetes service variables", "listen", nil, []string{
			"XPYD_SERVICE_HOST=10.0.0.1", "XPYD_SERVICE_PORT_HTTP=80", "XPYD_PORT=tcp://10.0.0.1:80", "XPYD_PORT_80_TCP_ADDR=10.0.0.1",
		}, "", ":8080"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append(slices.Clone(tc.args), decodeFlag...)
			if tc.file != "" {
				args = append(args, "--config", writeFile(t, "x.yaml", tc.file, 0o644))
			}
			c, err := load(t, args, tc.environ)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range configKeys() {
				if k.path == tc.path && k.text(c) != tc.want {
					t.Errorf("%s = %q, want %q", k.path, k.text(c), tc.want)
				}
			}
		})
	}
}

func TestConfigOtherFileFormats(t *testing.T) {
	for name, text := range map[string]string{
		"x.json": `{"decode":["http://d:1"],"limits":{"body":16777216},"decode_only":{"max_share":0.5}}`,
		"x.toml": "decode = ['http://d:1']\n[limits]\nbody = 16777216\n[decode_only]\nmax_share = 0.5\n",
		"x.conf": "decode: [http://d:1]\nlimits: {body: 16777216}\ndecode_only: {max_share: 0.5}\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := load(t, nil, []string{"XPYD_CONFIG=" + writeFile(t, name, text, 0o644)})
			if err != nil {
				t.Fatal(err)
			}
			if c.Limits.Body != 16<<20 || c.DecodeOnly.MaxShare != 0.5 || !slices.Equal(c.Router.Decode, []string{"http://d:1"}) {
				t.Errorf("got %+v %+v %q", c.Limits, c.DecodeOnly, c.Router.Decode)
			}
		})
	}
}

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
		{"count", []string{"--limits-connections-per-ip=many"}, nil,
			`config: limits.connections_per_ip: "many" must be a whole number (flag --limits-connections-per-ip, XPYD_LIMITS_CONNECTIONS_PER_IP)`},
		{"bool", []string{"--pprof=maybe"}, nil,
			`config: pprof: "maybe" must be true or false (flag --pprof, XPYD_PPROF)`},
		{"share", []string{"--decode-only-max-share=1.5"}, nil,
			`config: decode_only.max_share: "1.5" must be from 0 to 1; try 1 (flag --decode-only-max-share, XPYD_DECODE_ONLY_MAX_SHARE)`},
		{"share not a number", []string{"--decode-only-max-share=NaN"}, nil,
			`config: decode_only.max_share: "NaN" must be from 0 to 1; try 1 (flag --decode-only-max-share, XPYD_DECODE_ONLY_MAX_SHARE)`},
		{"no share of a client", []string{"--limits-client-share=0"}, nil,
			`config: limits.client_share: "0" must be above 0 and up to 1; try 0.5 (flag --limits-client-share, XPYD_LIMITS_CLIENT_SHARE)`},
		{"margin", []string{"--kv-lease=3s", "--kv-lease-margin=3s"}, nil,
			`config: kv.lease_margin: "3s" must be below kv.lease, 3s; try 500ms (flag --kv-lease-margin, XPYD_KV_LEASE_MARGIN)`},
		{"longest ejection below the first", []string{"--health-eject-max", "10s"}, nil,
			`config: health.eject_max: "10s" must not be below health.eject_for, 30s (flag --health-eject-max, XPYD_HEALTH_EJECT_MAX)`},
		{"prefix memory of a byte", []string{"--routing-prefix-memory=1"}, nil,
			`config: routing.prefix_memory: "1" must be 0, or at least 1MiB (flag --routing-prefix-memory, XPYD_ROUTING_PREFIX_MEMORY)`},
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
		{"connector", []string{"--connector=lmcache"}, nil,
			`config: connector: "lmcache" must be one of nixl (flag --connector, XPYD_CONNECTOR)`},
		{"log format", []string{"--log-format=xml"}, nil,
			`config: log.format: "xml" must be one of json, console (flag --log-format, XPYD_LOG_FORMAT)`},
		{"log level", []string{"--log-level=loud"}, nil,
			`config: log.level: "loud" must be one of debug, info, warn, error (flag --log-level, XPYD_LOG_LEVEL)`},
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

// What may be switched off is, by 0.
func TestConfigZeroSwitchesOff(t *testing.T) {
	for _, path := range mayBeZero {
		if _, err := load(t, append([]string{"--" + (key{path: path}).flag() + "=0"}, decodeFlag...), nil); err != nil {
			t.Errorf("%s: %v", path, err)
		}
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
		{"localhost:8100", `"localhost:8100" must start with http://; try http://localhost:8100`},
		{"https://a:1", `"https://a:1" speaks TLS, which is not supported yet; end TLS beside the engine and give its http:// address`},
		{"ftp://a:1", `"ftp://a:1" must start with http://; try http://127.0.0.1:8100`},
		{"http://", `"http://" lacks a host; try http://127.0.0.1:8100`},
		{"http://:8100", `"http://:8100" lacks a host; try http://127.0.0.1:8100`},
		{"http://a:0", `"http://a:0" must have a port from 1 to 65535; try http://127.0.0.1:8100`},
		{"http://a:", `"http://a:" must have a port from 1 to 65535; try http://127.0.0.1:8100`},
		{"http://a:70000", `"http://a:70000" must have a port from 1 to 65535; try http://127.0.0.1:8100`},
		{"http://a:x", `"http://a:x" is no URL; try http://127.0.0.1:8100`},
		{"http://a:1/v1", `"http://a:1/v1" must end after host and port; the routes are added`},
		{"http://a:1/?key=sesame", `"http://a:1/" must end after host and port; the routes are added`},
		{"http://me:sesame@a:1", `"http://a:1" must hold no user or password; use --backend-api-key-file`},
		{"me:sesame@a:1", `"a:1" must start with http://; try http://a:1`},
		{"http://a:1,http://A:1/", `"http://a:1" stands there twice; remove one`},
		{"http://a:1 weight=2,http://a:1", `"http://a:1" stands there twice; remove one`},
		{"http://a:1 weight=0", `"http://a:1 weight=0" must have a weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 weight=-1", `"http://a:1 weight=-1" must have a weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 weight=heavy", `"http://a:1 weight=heavy" must have a weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1  weight=NaN", `"http://a:1 weight=NaN" must have a weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 weight=2 http://me:sesame@b:1", `"http://a:1 weight=2" must have a weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 weight=http://me:sesame@b:1", `"http://a:1 weight=http://b:1" must have a weight from 0.01 to 100; try http://a:1 weight=2`},
		{"http://a:1 wieght=2", `"http://a:1" has something else than weight=NUMBER behind its URL; try http://a:1 weight=2`},
	} {
		t.Run(tc.url, func(t *testing.T) {
			_, err := load(t, append([]string{"--prefill", tc.url}, decodeFlag...), nil)
			checkUsage(t, err, "config: prefill: "+tc.want+names)
		})
	}
	t.Run("no decode", func(t *testing.T) {
		_, err := load(t, []string{"--prefill", "http://a:1"}, nil)
		checkUsage(t, err, `config: decode: needs at least one backend; try --decode http://127.0.0.1:8200 (flag --decode, XPYD_DECODE)`)
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
		{"number for a text", "listen: 8080\n", `listen: "8080" must be a text; put it in quotes (flag --listen, XPYD_LISTEN)`},
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
		"broken YAML": "timeouts: [", "doubled key": "listen: ':1'\nlisten: ':2'\n", "no map": "- a\n",
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

func TestConfigKeyFiles(t *testing.T) {
	clients := writeFile(t, "clients", "# ours\nalpha\n\n  beta\n", 0o600)
	backend := writeFile(t, "backend", "gamma\n", 0o400)
	c, err := load(t, append([]string{"--api-key=zero", "--api-key-file", clients, "--backend-api-key-file", backend}, decodeFlag...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.APIKeys, []string{"zero", "alpha", "beta"}) || c.BackendAPIKey != "gamma" {
		t.Errorf("got %q and %q", c.APIKeys, c.BackendAPIKey)
	}
	const names = " (flag --api-key-file, XPYD_API_KEY_FILE)"
	shared := writeFile(t, "shared", "sesame\n", 0o640)
	empty := writeFile(t, "empty", "# none yet\n", 0o600)
	for _, tc := range []struct{ name, file, want string }{
		{"missing", "/nonexistent/k", `"/nonexistent/k" cannot be read: no such file or directory; give a file that this user may read`},
		{"open to others", shared, `"` + shared + `" may be read by others (mode 0640); run chmod 600 ` + shared},
		{"no key", empty, `"` + empty + `" holds no key; write one a line`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, append([]string{"--api-key-file", tc.file}, decodeFlag...), nil)
			checkUsage(t, err, "config: api_key_file: "+tc.want+names)
		})
	}
	t.Run("a systemd credential", func(t *testing.T) {
		file := writeFile(t, "keys", "alpha\n", 0o440)
		_, err := load(t, append([]string{"--api-key-file", file}, decodeFlag...), []string{"CREDENTIALS_DIRECTORY=" + filepath.Dir(file)})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("two backend keys", func(t *testing.T) {
		file := writeFile(t, "keys", "sesame\nsesame2\n", 0o600)
		_, err := load(t, append([]string{"--backend-api-key-file", file}, decodeFlag...), nil)
		checkUsage(t, err, `config: backend_api_key_file: "`+file+`" holds 2 keys; leave one (flag --backend-api-key-file, XPYD_BACKEND_API_KEY_FILE)`)
	})
	t.Run("backend key and file", func(t *testing.T) {
		_, err := load(t, append([]string{"--backend-api-key=sesame", "--backend-api-key-file", backend}, decodeFlag...), nil)
		checkUsage(t, err, `config: backend_api_key_file: backend_api_key is set as well; give one of them (flag --backend-api-key-file, XPYD_BACKEND_API_KEY_FILE)`)
	})
}

func TestConfigKeysHaveHelp(t *testing.T) {
	names := map[string]bool{"config": true}
	for _, k := range configKeys() {
		if k.help() == "" {
			t.Errorf("%s has no line in keyHelp", k.path)
		}
		if names[k.flag()] {
			t.Errorf("--%s stands for two keys", k.flag())
		}
		names[k.flag()] = true
	}
	if extra := len(keyHelp) - len(configKeys()); extra != 0 {
		t.Errorf("keyHelp has %d lines more than there are keys", extra)
	}
}
