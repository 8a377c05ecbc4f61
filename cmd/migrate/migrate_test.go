package migrate

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"xpyd/cmd/config"
	pools "xpyd/router"
)

// load reads the YAML as xpyd would.
func load(t *testing.T, text []byte) (config.Config, error) {
	t.Helper()
	files := config.NewFiles(false)
	files.Make("made", text)
	flags := pflag.NewFlagSet("xpyd", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Set("config", "made"); err != nil {
		t.Fatal(err)
	}
	return config.Load(t.Context(), files, flags, nil)
}

// words splits a command line as a shell does, if no quotes have spaces in them.
func words(line string) []string {
	return strings.Fields(strings.NewReplacer(`"`, "", "\\\n", " ").Replace(line))
}

// The command lines in the routers' own documents do the same in xpyd.
func TestDocumentedCommandLines(t *testing.T) {
	for _, tc := range []struct {
		router, from, line string
		want               func(c *config.Config)
		notes              []string
	}{
		{"vllm-router", "README.md", `--policy consistent_hash --vllm-pd-disaggregation
			--prefill http://127.0.0.1:8081 --prefill http://127.0.0.1:8082
			--decode http://127.0.0.1:8083 --decode http://127.0.0.1:8084 --decode http://127.0.0.1:8085 --decode http://127.0.0.1:8086
			--host 127.0.0.1 --port 8090 --intra-node-data-parallel-size 1`,
			func(c *config.Config) {
				vllmRouterDefaults(c)
				c.Listen = "127.0.0.1:8090"
				c.Router.Prefill = pools.MustEntries("http://127.0.0.1:8081", "http://127.0.0.1:8082")
				c.Router.Decode = pools.MustEntries("http://127.0.0.1:8083", "http://127.0.0.1:8084", "http://127.0.0.1:8085", "http://127.0.0.1:8086")
				c.Router.PrefillPolicy, c.Router.DecodePolicy = "consistent_hash", "consistent_hash"
				c.Router.Affinity.Headers = []string{"X-Session-ID", "X-User-ID", "X-Tenant-ID"}
			}, []string{"intra-node-data-parallel-size"}},
		{"vllm-router", "docs/cli_reference.md", `--vllm-pd-disaggregation
			--prefill http://prefill-1:8000 9000 --prefill http://prefill-2:8000 none
			--decode http://decode-1:8001 --decode http://decode-2:8001
			--prefill-policy cache_aware --decode-policy power_of_two`,
			func(c *config.Config) {
				vllmRouterDefaults(c)
				c.Router.Prefill = pools.MustEntries("http://prefill-1:8000", "http://prefill-2:8000")
				c.Router.Decode = pools.MustEntries("http://decode-1:8001", "http://decode-2:8001")
				c.Router.DecodePolicy = "power_of_two"
			}, nil},
		{"vllm-router", "README.md", `--worker-urls http://localhost:8080 http://localhost:8081
			--retry-max-retries 3 --retry-initial-backoff-ms 100 --retry-max-backoff-ms 10000 --retry-backoff-multiplier 2.0 --retry-jitter-factor 0.1`,
			func(c *config.Config) {
				vllmRouterDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://localhost:8080", "http://localhost:8081"), "prefix"
			}, []string{"retry-max-retries", "retry-initial-backoff-ms", "retry-max-backoff-ms", "retry-backoff-multiplier", "retry-jitter-factor"}},
		{"vllm-router", "README.md", `--worker-urls http://localhost:8080 http://localhost:8081
			--cb-failure-threshold 5 --cb-success-threshold 2 --cb-timeout-duration-secs 30 --cb-window-duration-secs 60
			--prometheus-host 0.0.0.0 --prometheus-port 9000`,
			func(c *config.Config) {
				vllmRouterDefaults(c)
				c.Admin = "127.0.0.1:9000"
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://localhost:8080", "http://localhost:8081"), "prefix"
				c.Router.Health.EjectAfter, c.Router.Health.EjectFor = 5, 30*time.Second
			}, []string{"cb-success-threshold", "cb-window-duration-secs", "prometheus-host"}},
		{"vllm-router", "README.md: data parallel", `--worker-urls http://worker1:8000 http://worker2:8000 --policy consistent_hash --intra-node-data-parallel-size 8`,
			func(c *config.Config) {
				vllmRouterDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = nil, "consistent_hash"
				for _, worker := range []string{"http://worker1:8000@", "http://worker2:8000@"} {
					for rank := range 8 {
						c.Router.Decode = append(c.Router.Decode, pools.MustEntries(worker+strconv.Itoa(rank))...)
					}
				}
				c.Router.Affinity.Headers = []string{"X-Session-ID", "X-User-ID", "X-Tenant-ID"}
			}, nil},
		{"vllm-router", "README.md: mooncake", `--policy consistent_hash --vllm-pd-disaggregation --kv-connector mooncake
			--prefill http://127.0.0.1:8081 --prefill http://127.0.0.1:8082 9000 --decode http://127.0.0.1:8083 --decode http://127.0.0.1:8084
			--host 127.0.0.1 --port 8090 --intra-node-data-parallel-size 1`,
			func(c *config.Config) {
				vllmRouterDefaults(c)
				c.Listen, c.Connector = "127.0.0.1:8090", "mooncake"
				c.Router.Prefill = pools.MustEntries("http://127.0.0.1:8081", "http://127.0.0.1:8082 bootstrap=9000")
				c.Router.Decode = pools.MustEntries("http://127.0.0.1:8083", "http://127.0.0.1:8084")
				c.Router.PrefillPolicy, c.Router.DecodePolicy = "consistent_hash", "consistent_hash"
				c.Router.Affinity.Headers = []string{"X-Session-ID", "X-User-ID", "X-Tenant-ID"}
			}, []string{"intra-node-data-parallel-size"}},
		{"vllm-router", "README.md: request ids", `--worker-urls http://localhost:8080 --request-id-headers x-trace-id x-request-id`,
			func(c *config.Config) {
				vllmRouterDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://localhost:8080"), "prefix"
			}, []string{"request-id-headers"}},
		{"vllm-router", "docs/cli_reference.md: the tables", `--worker-urls http://worker:8000 --cors-allowed-origins https://example.com
			--enable-trace --otlp-traces-endpoint collector:4317 --otel-sampling-ratio 0.1 --otel-excluded-paths /health
			--wasm-middleware m.wasm --wasm-middleware-sha256 00 --wasm-middleware-route /v1/completions --history-backend none --profile --runtime vllm`,
			func(c *config.Config) {
				vllmRouterDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://worker:8000"), "prefix"
				c.CORS.Origins = []string{"https://example.com"}
				c.Tracing.Endpoint, c.Tracing.Sample = "http://collector:4317", 0.1
			}, []string{"otel-excluded-paths", "wasm-middleware", "wasm-middleware-sha256", "wasm-middleware-route", "history-backend", "profile", "runtime"}},
		{"sglang-router", "sgl-model-gateway/README.md: regular", `--worker-urls http://worker1:8000 http://worker2:8000 --policy cache_aware`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://worker1:8000", "http://worker2:8000"), "prefix"
			}, nil},
		{"sglang-router", "sgl-model-gateway/README.md: OpenAI", `--backend openai --worker-urls https://api.openai.com --history-backend memory`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("https://api.openai.com:443"), "prefix"
			}, []string{"backend", "history-backend"}},
		{"sglang-router", "sgl-model-gateway/README.md: MCP", `--mcp-config-path /path/to/mcp-config.yaml --worker-urls http://worker1:8000`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://worker1:8000"), "prefix"
			}, []string{"mcp-config-path"}},
		{"sglang-router", "sgl-model-gateway/README.md: mini", `--mini-lb --pd-disaggregation --prefill http://localhost:30001 --decode http://localhost:30011`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Connector = "sglang"
				c.Router.Prefill, c.Router.Decode = pools.MustEntries("http://localhost:30001"), pools.MustEntries("http://localhost:30011")
				c.Router.DecodePolicy = "prefix"
			}, []string{"mini-lb"}},
		{"sglang-router", "sgl-model-gateway/README.md: traces", `--worker-urls http://worker1:8000 --enable-trace --otlp-traces-endpoint 10.0.0.9:4317`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://worker1:8000"), "prefix"
				c.Tracing.Endpoint = "http://10.0.0.9:4317"
			}, nil},
		{"sglang-router", "sgl-model-gateway/README.md: PD", `--pd-disaggregation
			--prefill http://prefill1:30001 9001 --prefill http://prefill2:30002 --decode http://decode1:30011 --decode http://decode2:30012
			--policy cache_aware --prefill-policy cache_aware --decode-policy power_of_two`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Connector = "sglang"
				c.Router.Prefill = pools.MustEntries("http://prefill1:30001 bootstrap=9001", "http://prefill2:30002")
				c.Router.Decode = pools.MustEntries("http://decode1:30011", "http://decode2:30012")
				c.Router.DecodePolicy = "power_of_two"
			}, []string{"policy"}},
		{"sglang-router", "sgl-model-gateway/README.md", `--api-key "shared-api-key" --worker-urls http://worker1:8000 http://worker2:8000`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://worker1:8000", "http://worker2:8000"), "prefix"
				c.APIKeys, c.BackendAPIKey = []string{"shared-api-key"}, "shared-api-key"
			}, nil},
		{"smg", "model_gateway/src/main.rs", `launch --pd-disaggregation
			--prefill http://127.0.0.1:30001 9001 --prefill http://127.0.0.2:30002 --decode http://127.0.0.3:30003 --decode http://127.0.0.4:30004
			--prefill-policy cache_aware --decode-policy power_of_two`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Connector = "sglang"
				c.Router.Prefill = pools.MustEntries("http://127.0.0.1:30001 bootstrap=9001", "http://127.0.0.2:30002")
				c.Router.Decode = pools.MustEntries("http://127.0.0.3:30003", "http://127.0.0.4:30004")
				c.Router.DecodePolicy = "power_of_two"
			}, nil},
		{"smg", "README.md: several", `launch --worker-urls http://gpu1:8000 http://gpu2:8000 --policy cache_aware`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://gpu1:8000", "http://gpu2:8000"), "prefix"
			}, nil},
		{"smg", "README.md", `launch --worker-urls http://gpu1:8000 --enable-mesh --mesh-advertise-host 10.0.0.1 --mesh-peer-urls 10.0.0.2:39527`,
			func(c *config.Config) {
				gatewayDefaults(c)
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://gpu1:8000"), "prefix"
			}, []string{"enable-mesh", "mesh-advertise-host", "mesh-peer-urls"}},
		{"toy", "tests/v1/kv_connector/nixl_integration/run_accuracy_test.sh",
			`--port 8192 --prefiller-hosts localhost localhost --prefiller-ports 8100 8101 --decoder-hosts localhost localhost --decoder-ports 8200 8201`,
			func(c *config.Config) {
				c.Listen = "127.0.0.1:8192"
				c.Router.Prefill = pools.MustEntries("http://localhost:8100", "http://localhost:8101")
				c.Router.Decode = pools.MustEntries("http://localhost:8200", "http://localhost:8201")
				c.Router.PrefillPolicy, c.Router.DecodePolicy = "round_robin", "round_robin"
			}, nil},
		{"epd-proxy", "disagg_1e1p1d_example.sh", `--host 0.0.0.0 --port 1889 --encode-servers-urls http://localhost:19534 --prefill-servers-urls http://localhost:19535 --decode-servers-urls http://localhost:19536`,
			func(c *config.Config) {
				c.Listen = "0.0.0.0:1889"
				c.Router.Encode, c.Router.Prefill, c.Router.Decode = pools.MustEntries("http://localhost:19534"), pools.MustEntries("http://localhost:19535"), pools.MustEntries("http://localhost:19536")
				c.Router.PrefillPolicy, c.Router.DecodePolicy = "random", "random"
			}, nil},
		{"epd-proxy", "disagg_1e1pd_example.sh", `--encode-servers-urls http://e:1,http://f:2 --prefill-servers-urls disable --decode-servers-urls http://localhost:3 --ec-consumer-zmq-addrs tcp://h:1`,
			func(c *config.Config) {
				c.Listen = "0.0.0.0:8000"
				c.Router.Encode, c.Router.Decode = pools.MustEntries("http://e:1", "http://f:2"), pools.MustEntries("http://localhost:3")
				c.Router.PrefillPolicy, c.Router.DecodePolicy = "random", "random"
			}, []string{"ec-consumer-zmq-addrs"}},
		{"llm-d-sidecar", "deploy: epd", `--port=8000 --ec-connector=ec-example --enable-tls=encoder --secure-proxy=false`,
			func(c *config.Config) {
				c.Listen = ":8000"
				c.Router.Decode = pools.MustEntries("http://localhost:8200")
			}, []string{"ec-connector", "enable-tls"}},
		{"llm-d-sidecar", "deploy/components/vllm-decode/deployment.yaml", `--port=8000 --vllm-port=8200 --secure-proxy=false --data-parallel-size=1`,
			func(c *config.Config) {
				c.Listen = ":8000"
				c.Router.Decode = pools.MustEntries("http://localhost:8200")
			}, []string{"data-parallel-size"}},
		{"llm-d-sidecar", "deploy/environments/dev/p-d/patch-decode.yaml", `--port=8000 --kv-connector=mooncake --mooncake-bootstrap-port=8000 --secure-proxy=false --data-parallel-size=1`,
			func(c *config.Config) {
				c.Listen, c.Connector = ":8000", "mooncake"
				c.Router.Decode = pools.MustEntries("http://localhost:8200")
			}, []string{"data-parallel-size", "mooncake-bootstrap-port"}},
		{"llm-d-sidecar", "docs: offloading", `--port=8000 --kv-connector=offloading --p2p-connector-port=5711 --enable-p2p-pull --secure-proxy=false`,
			func(c *config.Config) {
				c.Listen, c.Connector = ":8000", "offloading-p2p"
				c.Router.Decode = pools.MustEntries("http://localhost:8200")
			}, []string{"enable-p2p-pull", "p2p-connector-port"}},
		{"llm-d-sidecar", "test/sidecar/config/base/pod-qwen.yaml", `--port=8000 --model-server-port=8001 --secure-serving=false`,
			func(c *config.Config) {
				c.Listen = ":8000"
				c.Router.Decode = pools.MustEntries("http://localhost:8001")
			}, nil},
		{"production-stack", "src/vllm_router/perf-test.sh", `--port 8000 --service-discovery static
			--static-backends "http://localhost:9004,http://localhost:9001" --static-models "fake_model_name,fake_model_name"
			--engine-stats-interval 10 --log-stats --routing-logic session --session-key "x-user-id"`,
			func(c *config.Config) {
				c.Listen = "0.0.0.0:8000"
				c.Router.Decode = pools.MustEntries("http://localhost:9004", "http://localhost:9001")
				c.Router.DecodePolicy, c.Router.Affinity.Headers = "least_request", []string{"x-user-id"}
				c.Router.Routing.Poll = 10 * time.Second
			}, []string{"static-models", "log-stats"}},
		{"production-stack", "tutorials/23-whisper-api-transcription.md", `--host 0.0.0.0 --port 8000 --service-discovery static --static-backends http://localhost:8002
			--static-models "openai/whisper-small" --static-model-types "transcription" --routing-logic roundrobin --log-stats --log-level debug
			--engine-stats-interval 10 --request-stats-window 10 --static-backend-health-checks --otel-endpoint localhost:4317 --otel-service-name r --otel-secure`,
			func(c *config.Config) {
				c.Listen, c.Log.Level = "0.0.0.0:8000", "debug"
				c.Router.Decode, c.Router.DecodePolicy = pools.MustEntries("http://localhost:8002"), "round_robin"
				c.Router.Routing.Poll = 10 * time.Second
				c.Tracing.Endpoint = "https://localhost:4317"
			}, []string{"static-models", "static-model-types", "log-stats", "request-stats-window", "static-backend-health-checks", "otel-service-name"}},
		{"production-stack", "examples/disaggregated_prefill/router.sh", `--port 8000 --service-discovery static
			--static-backends "http://localhost:8100,http://localhost:8200" --static-models "meta-llama/Llama-3.1-8B-Instruct,meta-llama/Llama-3.1-8B-Instruct"
			--static-model-types "chat,chat" --static-model-labels "llama-prefill,llama-decode"
			--prefill-model-labels "llama-prefill" --decode-model-labels "llama-decode"
			--log-stats --log-stats-interval 10 --engine-stats-interval 10 --request-stats-window 10 --request-stats-window 10
			--routing-logic disaggregated_prefill`,
			func(c *config.Config) {
				c.Listen = "0.0.0.0:8000"
				c.Router.Prefill, c.Router.Decode = pools.MustEntries("http://localhost:8100"), pools.MustEntries("http://localhost:8200")
				c.Router.Routing.Poll = 10 * time.Second
			}, []string{"routing-logic", "static-models", "static-model-types", "request-stats-window", "log-stats", "log-stats-interval"}},
		{"production-stack", "src/vllm_router/README.md", `--port 8000 --service-discovery static
			--static-backends "http://localhost:9001,http://localhost:9002,http://localhost:9003"
			--static-models "facebook/opt-125m,meta-llama/Llama-3.1-8B-Instruct,facebook/opt-125m" --static-aliases "gpt4:meta-llama/Llama-3.1-8B-Instruct"
			--static-model-types "chat,chat,chat" --static-backend-health-checks --engine-stats-interval 10 --log-stats --routing-logic roundrobin`,
			func(c *config.Config) {
				c.Listen = "0.0.0.0:8000"
				c.Router.Decode = pools.MustEntries("http://localhost:9001", "http://localhost:9002", "http://localhost:9003")
				c.Router.DecodePolicy = "round_robin"
				c.Router.Routing.Poll = 10 * time.Second
			}, []string{"static-models", "static-aliases", "static-model-types", "static-backend-health-checks", "log-stats"}},
	} {
		t.Run(tc.router+" "+tc.from, func(t *testing.T) {
			text, err := YAML(tc.router, words(tc.line))
			if err != nil {
				t.Fatal(err)
			}
			got, err := load(t, text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			want := config.Default()
			tc.want(&want)
			if differ := config.ChangedKeys(got, want); len(differ) > 0 {
				t.Errorf("differs in %q:\n%s", differ, text)
			}
			expectNamed(t, tc.line, text)
			if notes := noted(string(text)); !slices.Equal(notes, slices.Sorted(slices.Values(tc.notes))) {
				t.Errorf("notes on %q, want %q", notes, tc.notes)
			}
		})
	}
}

func vllmRouterDefaults(c *config.Config) {
	gatewayDefaults(c)
	c.Listen = "127.0.0.1:30000"
}

// gatewayDefaults are the defaults of the gateways. prefix is xpyd's own default for prefill.
func gatewayDefaults(c *config.Config) {
	c.Listen, c.Admin = "0.0.0.0:30000", "127.0.0.1:29000"
	c.Timeouts.Request, c.Limits.Body = 1800*time.Second, 512<<20
}

// expectNamed wants each flag of the line in a comment.
func expectNamed(t *testing.T, line string, text []byte) {
	t.Helper()
	for _, word := range words(line) {
		if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !namesFlag(text, flag) {
			t.Errorf("no comment names %s:\n%s", flag, text)
		}
	}
}

// namesFlag reports whether a comment names the flag.
func namesFlag(text []byte, flag string) bool {
	for line := range strings.Lines(string(text)) {
		_, comment, _ := strings.Cut(line, "#")
		if slices.Contains(strings.FieldsFunc(comment, func(r rune) bool { return strings.ContainsRune(" ,.:=\n", r) }), flag) {
			return true
		}
	}
	return false
}

// No flag is lost: each of a router's flags, given beside a line of engines, is named in a comment.
func TestEveryFlagIsNamed(t *testing.T) {
	lines := map[string]string{
		"vllm-router": "--vllm-pd-disaggregation --prefill http://p:1 --decode http://d:1", "sglang-router": "--pd-disaggregation --prefill http://p:1 --decode http://d:1",
		"smg": "--pd-disaggregation --prefill http://p:1 --decode http://d:1", "toy": "", "llm-d-sidecar": "",
		"production-stack": "--static-backends http://w:1 --routing-logic roundrobin",
	}
	values := map[string]string{
		"policy": "random", "prefill-policy": "random", "decode-policy": "random", "log-level": "info", "log-format": "json", "backend": "vllm", "runtime": "vllm",
		"tenant-api-key": "t:k", "prefill": "http://p:2", "decode": "http://d:2", "kv-connector": "mooncake", "connector": "nixl", "routing-logic": "roundrobin",
		"service-discovery": "k8s", "intra-node-data-parallel-size": "8", "static-backends": "http://w:2",
	}
	idle := []string{"static-model-labels", "prefill-model-labels", "decode-model-labels", "session-key"} // without the routing logic that reads them
	for _, r := range routers() {
		for _, rule := range r.rules {
			args := append(strings.Fields(lines[r.name]), "--"+rule.flag)
			value, ok := values[rule.flag]
			if !ok {
				value = "1"
			}
			if rule.takes != none {
				args = append(args, value)
			}
			text, err := YAML(r.name, args)
			if strings.Contains(string(text), "changes nothing") != slices.Contains(idle, rule.flag) {
				t.Errorf("%s: does --%s change something?\n%s", r.name, rule.flag, text)
			}
			if err != nil {
				t.Errorf("%s --%s: %v", r.name, rule.flag, err)
			} else if !namesFlag(text, "--"+rule.flag) {
				t.Errorf("%s: no comment names --%s:\n%s", r.name, rule.flag, text)
			}
		}
	}
}

// noted returns the flags that the text lists as having no equivalent.
func noted(text string) (flags []string) {
	_, notes, _ := strings.Cut(text, "# These flags have no equivalent:\n")
	for _, line := range strings.Split(strings.TrimSpace(notes), "\n") {
		if flag, _, ok := strings.Cut(strings.TrimPrefix(line, "#   --"), ": "); ok {
			flags = append(flags, flag)
		}
	}
	slices.Sort(flags)
	return flags
}

// The tables have exactly the flags that the routers declare.
func TestEveryFlagIsKnown(t *testing.T) {
	for _, r := range routers() {
		declared, err := os.ReadFile(filepath.Join("testdata", "flags", r.name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Fields(string(declared))
		var got []string
		for _, rule := range r.rules {
			if slices.Contains(got, rule.flag) {
				t.Errorf("%s: --%s has two rules", r.name, rule.flag)
			}
			got = append(got, rule.flag)
		}
		for _, flag := range want {
			if !slices.Contains(got, flag) {
				t.Errorf("%s: --%s has no rule", r.name, flag)
			}
		}
		for _, flag := range got {
			if !slices.Contains(want, flag) {
				t.Errorf("%s has no flag --%s", r.name, flag)
			}
		}
	}
}

// Each flag with a plain value arrives in its setting, in its unit.
func TestSingleFlags(t *testing.T) {
	engines := map[string]string{
		"vllm-router": "--worker-urls http://w:1", "sglang-router": "--worker-urls http://w:1", "smg": "--worker-urls http://w:1",
		"production-stack": "--static-backends http://w:1 --routing-logic roundrobin", "llm-d-sidecar": "",
	}
	for _, tc := range []struct {
		router, line string
		want         func(c *config.Config) bool
	}{
		{"vllm-router", "--host ::1 --port 9", func(c *config.Config) bool { return c.Listen == "[::1]:9" }},
		{"vllm-router", "--host=[::1] --port=9", func(c *config.Config) bool { return c.Listen == "[::1]:9" }},
		{"vllm-router", "--request-timeout-secs 90", func(c *config.Config) bool { return c.Timeouts.Request == 90*time.Second }},
		{"vllm-router", "--max-payload-size 1073741824", func(c *config.Config) bool {
			return c.Limits.Body == 1<<30 && c.Limits.BodyBudget == 2<<30
		}},
		{"vllm-router", "--queue-size 7 --queue-timeout-secs 3", func(c *config.Config) bool {
			return c.Router.Queue.Length == 7 && c.Router.Queue.Wait == 3*time.Second
		}},
		{"vllm-router", "--health-failure-threshold 9 --health-success-threshold 4 --health-check-timeout-secs 6 --health-check-interval-secs 8", func(c *config.Config) bool {
			h := c.Router.Health
			return h.Fall == 9 && h.Rise == 4 && h.Timeout == 6*time.Second && h.Interval == 8*time.Second
		}},
		{"vllm-router", "--cb-timeout-duration-secs 700", func(c *config.Config) bool {
			return c.Router.Health.EjectFor == 700*time.Second && c.Router.Health.EjectMax == 700*time.Second
		}},
		{"vllm-router", "--cb-failure-threshold 4 --disable-circuit-breaker", func(c *config.Config) bool { return c.Router.Health.EjectAfter == 0 }},
		{"vllm-router", "--log-level warning", func(c *config.Config) bool { return c.Log.Level == "warn" }},
		{"vllm-router", "--api-key k", func(c *config.Config) bool { return c.BackendAPIKey == "k" && c.APIKeys == nil }},
		{"vllm-router", "--policy random --policy rendezvous_hash", func(c *config.Config) bool { return c.Router.DecodePolicy == "consistent_hash" }},
		{"vllm-router", "--enable-trace", func(c *config.Config) bool { return c.Tracing.Endpoint == "" }},
		{"vllm-router", "--cors-allowed-origins https://a.example https://b.example", func(c *config.Config) bool {
			return slices.Equal(c.CORS.Origins, []string{"https://a.example", "https://b.example"})
		}},
		{"sglang-router", "--enable-trace", func(c *config.Config) bool { return c.Tracing.Endpoint == "http://localhost:4317" }},
		{"smg", "--otlp-traces-endpoint c:4317", func(c *config.Config) bool { return c.Tracing.Endpoint == "" }},
		{"smg", "--pd-disaggregation --prefill http://p:1 9001 --prefill http://q:1 none --decode http://d:1 --backend sglang", func(c *config.Config) bool {
			return c.Connector == "sglang" && slices.Equal(c.Router.Prefill, pools.MustEntries("http://p:1 bootstrap=9001", "http://q:1"))
		}},
		{"sglang-router", "--shutdown-grace-period-secs 20", func(c *config.Config) bool { return c.Timeouts.Drain == 20*time.Second }},
		{"sglang-router", "--max-concurrent-requests -1", func(c *config.Config) bool { return true }},
		{"smg", "--api-key a --tenant-api-key t:b --tenant-api-key u:c:d", func(c *config.Config) bool {
			return slices.Equal(c.APIKeys, []string{"a", "b", "c:d"}) && c.BackendAPIKey == "a"
		}},
		{"smg", "--policy least_load --routing-key-override --log-json", func(c *config.Config) bool {
			return c.Router.DecodePolicy == "least_tokens" && slices.Equal(c.Router.Affinity.Headers, []string{"X-SMG-Routing-Key"})
		}},
		{"smg", "--prefill-selector a=b c=d", func(c *config.Config) bool { return true }},
		{"llm-d-sidecar", "--model-server-port=8300 --kv-connector=nixlv2 --metrics-port=9095 --zap-devel", func(c *config.Config) bool {
			return c.Router.Decode[0].URL == "http://localhost:8300" && c.Admin == "127.0.0.1:9095"
		}},
		{"production-stack", "--routing-logic session --session-key x-user-id --log-format text --log-level trace", func(c *config.Config) bool {
			return slices.Equal(c.Router.Affinity.Headers, []string{"x-user-id"}) && c.Log == config.Log{Level: "debug", Format: "console", Flush: c.Log.Flush}
		}},
		{"production-stack", "--static-backend-health-check-timeout-seconds 4 --static-backend-health-check-interval 44", func(c *config.Config) bool {
			return c.Router.Health.Timeout == 4*time.Second && c.Router.Health.Interval == 44*time.Second
		}},
	} {
		text, err := YAML(tc.router, words(engines[tc.router]+" "+tc.line))
		if err != nil {
			t.Errorf("%s %s: %v", tc.router, tc.line, err)
			continue
		}
		if c, err := load(t, text); err != nil || !tc.want(&c) {
			t.Errorf("%s %s: %v\n%s", tc.router, tc.line, err, text)
		}
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, tc := range []struct{ router, line, want string }{
		{"haproxy", "", `"haproxy" is no router whose flags are known; give one of vllm-router, sglang-router, smg, toy, epd-proxy, llm-d-sidecar, production-stack`},
		{"vllm-router", "--mode pd", "vllm-router: it has no flag --mode"},
		{"vllm-router", "pd", "vllm-router: its command line must begin with a flag"},
		{"vllm-router", "--api-key k1 sk-secret", "vllm-router: --api-key has one value too many"},
		{"vllm-router", "--port", "vllm-router: --port: a value is missing"},
		{"vllm-router", "--port --host", "vllm-router: --port: a value is missing"},
		{"vllm-router", "--enable-igw=maybe", `vllm-router: --enable-igw: "maybe" must be true or false`},
		{"vllm-router", "--prefill http://p:1 --decode http://d:1", "vllm-router: --prefill and --decode count only with --vllm-pd-disaggregation"},
		{"vllm-router", "--worker-urls http://w:1 --policy fastest",
			`vllm-router: --policy: "fastest" is none of cache_aware, consistent_hash, power_of_two, random, rendezvous_hash, round_robin, sticky_least_loaded, sticky_round_robin`},
		{"vllm-router", "--worker-urls http://w:1 --request-timeout-secs 5m", `vllm-router: --request-timeout-secs: "5m" must be a whole number of seconds`},
		{"vllm-router", "--worker-urls http://w:1 --max-payload-size 1GiB", `vllm-router: --max-payload-size: "1GiB" must be a whole number`},
		{"smg", "--worker-urls http://w:1 --tenant-api-key sk-secret", "smg: --tenant-api-key: a value lacks the colon between tenant and key"},
		{"smg", "--worker-urls http://w:1 --ca-cert-paths a b", "smg: --ca-cert-paths: xpyd takes one file; put all CAs into one"},
		{"toy", "--prefiller-ports 1 2", "toy: 1 --prefiller-hosts and 2 --prefiller-ports; give as many of one as of the other"},
		{"toy", "--decoder-ports http", `toy: --decoder-ports: "http" is no port`},
		{"llm-d-sidecar", "--kv-connector=lmcache", `llm-d-sidecar: --kv-connector: "lmcache" has no equivalent; xpyd speaks mooncake, nixl, nixlv2, offloading, sglang, shared-storage`},
		{"sglang-router", "--pd-disaggregation --prefill http://p:1 --decode http://d:1 --backend trtllm",
			`sglang-router: --backend: "trtllm" has no equivalent; xpyd speaks to vllm and, as an experiment, to sglang`},
		{"production-stack", "--static-backends http://w:1", "production-stack: --routing-logic is missing"},
		{"production-stack", "--static-backends http://w:1 --routing-logic session", "production-stack: --routing-logic session needs --session-key"},
		{"production-stack", "--static-backends http://w:1 --routing-logic disaggregated_prefill", "production-stack: 1 --static-backends and 0 --static-model-labels; give each backend its label"},
	} {
		_, err := YAML(tc.router, words(tc.line))
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s %s:\n got %v\nwant %s", tc.router, tc.line, err, tc.want)
		}
	}
}

// Certificates keep their files. The files are not there, so the configuration is not loaded.
func TestCertificates(t *testing.T) {
	for _, tc := range []struct {
		router, line string
		want         []string
	}{
		{"smg", "--worker-urls https://w:1 --tls-cert-path c --tls-key-path k --client-cert-path cc --client-key-path ck --ca-cert-paths ca",
			[]string{"\ntls:\n  cert: \"c\"", "  key: \"k\"", "\nbackend_tls:\n  ca: \"ca\"", "  cert: \"cc\"", "  key: \"ck\""}},
		{"llm-d-sidecar", "--cert-path=/certs --enable-tls=prefiller,decoder --metrics-cert-dir=/m",
			[]string{"\ntls:\n  cert: \"/certs/tls.crt\"", "  key: \"/certs/tls.key\"", "\nadmin_tls:\n  cert: \"/m/tls.crt\"", `decode: ["https://localhost:8200"]`}},
		{"llm-d-sidecar", "", []string{"#   --secure-serving: "}},
	} {
		text, err := YAML(tc.router, words(tc.line))
		if err != nil {
			t.Errorf("%s %s: %v", tc.router, tc.line, err)
		}
		for _, want := range tc.want {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s %s lacks %s:\n%s", tc.router, tc.line, want, text)
			}
		}
	}
	if text, err := YAML("llm-d-sidecar", words("--secure-proxy=false --cert-path=/certs")); err != nil || strings.Contains(string(text), "tls:") || strings.Contains(string(text), "#   --secure") {
		t.Errorf("%v\n%s", err, text)
	}
}

// A value that tries to be YAML stays a value, and no comment shows a value.
func TestValuesStayValues(t *testing.T) {
	text, err := YAML("vllm-router", []string{"--worker-urls", "http://w:1", "--api-key", "k\"\npprof: true # ", "--log-dir", "/secret\npprof: true"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), "backend_api_key") || strings.Contains(err.Error(), "pprof") {
		t.Errorf("%v\n%s", err, text)
	}
	if strings.Contains(string(text), "/secret") {
		t.Errorf("a comment has the value of a flag:\n%s", text)
	}
}

// Documented command lines whose engines xpyd cannot have: all of their flags are named, and the
// configuration says what is missing.
func TestDocumentedCommandLinesWithoutUsableEngines(t *testing.T) {
	const none = "decode: needs at least one backend"
	for _, tc := range []struct{ router, line, want string }{
		{"vllm-router", `--policy consistent_hash --vllm-pd-disaggregation --vllm-discovery-address 0.0.0.0:30001 --host 0.0.0.0 --port 10001
			--prefill-policy consistent_hash --decode-policy consistent_hash`, none},
		{"vllm-router", "--service-discovery --selector app=vllm-worker role=inference --service-discovery-namespace default", none},
		{"vllm-router", "--api-key-validation-urls https://codebase.helmholtz.cloud/api/v4/user", none},
		{"sglang-router", "--enable-igw --policy cache_aware --max-concurrent-requests 512", none},
		{"sglang-router", "--service-discovery --selector app=sglang-worker role=inference --service-discovery-namespace sglang-system --service-discovery-port 8000", none},
		{"sglang-router", "--pd-disaggregation --prefill-selector app=sglang component=prefill --decode-selector app=sglang component=decode --service-discovery", none},
		{"sglang-router", "--worker-urls grpc://worker-grpc-0:31001 grpc://worker-grpc-1:31002 --tokenizer-path /path/to/tokenizer.json --reasoning-parser deepseek-r1 --tool-call-parser json",
			`decode: "grpc://worker-grpc-0:31001" must`},
		{"production-stack", `--port 8000 --service-discovery k8s --k8s-label-selector release=test --k8s-namespace default --routing-logic session --session-key x-user-id
			--engine-stats-interval 10 --log-stats`, none},
		{"production-stack", `--service-discovery=k8s --k8s-label-selector=app --prefill-model-labels=prefill --decode-model-labels=decode --routing-logic=disaggregated_prefill_orchestrated`, none},
	} {
		text, err := YAML(tc.router, words(tc.line))
		if err != nil {
			t.Errorf("%s %s: %v", tc.router, tc.line, err)
			continue
		}
		expectNamed(t, tc.line, text)
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: got %v, want %s", tc.router, tc.line, err, tc.want)
		}
	}
}
