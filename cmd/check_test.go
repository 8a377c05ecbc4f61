package cmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/cmd/config"
	"xpyd/sim"
)

// stubEngine answers what check asks. Its faults are mistakes of operators, most of which the engines
// of package sim cannot simulate.
type stubEngine struct {
	version, model string
	key            string // required as a bearer token; "" requires none
	unhealthy      bool
	handleHost     string // in prefill's answer; "" sends no handle
	handlePort     string // as JSON
	pulls          bool   // decode has a connector
	decodeStatus   int
	jump           int // transfers that decode counts for each request; 0 if it has no such metric

	mu     sync.Mutex
	pulled int
	bodies []string
}

func newStub() *stubEngine {
	return &stubEngine{version: "0.32.0", model: "m", handleHost: "127.0.0.1", handlePort: "5600", pulls: true, decodeStatus: 200}
}

func (s *stubEngine) start(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if s.unhealthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		if s.key != "" && r.Header.Get("Authorization") != "Bearer "+s.key {
			http.Error(w, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q}]}`, s.model)
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"version":%q}`, s.version) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, "vllm:external_prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} %d.0\n", s.pulled)
		if n := s.jump * s.pulled / 200; s.jump > 0 {
			for name, each := range map[string]float64{"nixl_xfer_time_seconds_count": 1, "nixl_xfer_time_seconds_sum": 0.01, "nixl_bytes_transferred_sum": 1e5} {
				fmt.Fprintf(w, "vllm:%s{engine=\"0\",model_name=\"m\"} %v\n", name, each*float64(n))
			}
		}
	})
	mux.HandleFunc("POST /v1/completions", s.complete)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func (s *stubEngine) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, r.Header.Get("X-Request-Id")+" "+string(body))
	answer := `{"id":"cmpl-1","choices":[{"index":0,"text":"x","finish_reason":"length"}],"usage":{"prompt_tokens":9},"kv_transfer_params":%s}`
	switch {
	case bytes.Contains(body, []byte(`"do_remote_decode":true`)) && s.handleHost == "":
		fmt.Fprintf(w, answer, "null")
	case bytes.Contains(body, []byte(`"do_remote_decode":true`)):
		fmt.Fprintf(w, answer, fmt.Sprintf(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2]],`+
			`"remote_engine_id":"e","remote_request_id":"r","remote_host":%q,"remote_port":%s}`, s.handleHost, s.handlePort))
	case s.decodeStatus != 200:
		w.WriteHeader(s.decodeStatus)
		fmt.Fprint(w, `{"error":{"message":"load failed","code":500}}`)
	default:
		if s.pulls && bytes.Contains(body, []byte(`"remote_block_ids":[[1,2]]`)) {
			s.pulled += 200
		}
		fmt.Fprintf(w, answer, "null")
	}
}

// asked returns the ids and bodies of the completions so far.
func (s *stubEngine) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

func runCheck(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newCheckCmd()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func TestCheckPrintsPools(t *testing.T) {
	out, err := runCheck("--listen=127.0.0.1:1", "--prefill", "http://a:1,http://b:2", "--decode", "http://c:3", "--decode-policy", "round_robin")
	if want := "prefill: http://a:1 http://b:2 (prefix)\ndecode: http://c:3 (round_robin)\nok\n"; err != nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	out, err = runCheck("--listen=127.0.0.1:1", "--decode", "http://c:3")
	if want := "prefill: none, every request goes to the decode pool alone\ndecode: http://c:3 (prefix)\nok\n"; err != nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	_, err = runCheck("--decode", "http://c:3", "--kv-release", "x")
	checkUsage(t, err, `config: kv.release: "x" must be one of auto, reject, decode, off (flag --kv-release, XPYD_KV_RELEASE)`)
}

func TestCheckUnknownFlag(t *testing.T) {
	_, err := runCheck("--decod", "http://c:3")
	checkUsage(t, err, "unknown flag: --decod; the nearest is --decode, see check --help")
	_, err = runCheck("--zzz")
	checkUsage(t, err, "unknown flag: --zzz; see check --help")
	_, err = runCheck("--decode")
	checkUsage(t, err, "flag needs an argument: --decode")
}

func TestCheckProbeFits(t *testing.T) {
	prefill, decode := newStub(), newStub()
	prefill.key, decode.key = "sesame", "sesame"
	p, d := prefill.start(t), decode.start(t)
	out, err := runCheck("--probe", "--prefill", p, "--decode", d, "--backend-api-key", "sesame")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.HasSuffix(out, "\nok\n") || strings.Contains(out, "note:") || strings.Contains(out, "sesame") {
		t.Errorf("got\n%s", out)
	}
	toP, toD := prefill.asked(), decode.asked()
	if len(toP) != 1 || len(toD) != 1 {
		t.Fatalf("prefill had %d requests and decode %d, want one each", len(toP), len(toD))
	}
	pid, _, _ := strings.Cut(toP[0], " ")
	did, decodeBody, _ := strings.Cut(toD[0], " ")
	if pid != did || !strings.HasPrefix(pid, "xpyd-check-") {
		t.Errorf("the legs have the ids %q and %q", pid, did)
	}
	if !strings.Contains(decodeBody, `"max_tokens":1`) || !strings.Contains(decodeBody, `"remote_request_id":"r"`) {
		t.Errorf("decode got %s", decodeBody)
	}
}

// The simulated engines keep a ledger, which shows that a check leaves no block pinned.
func TestCheckProbeSimulatedEngines(t *testing.T) {
	t.Parallel()
	start := func(role sim.Role) *sim.Engine {
		e, err := sim.Start(sim.Options{Role: role}.Fast())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	prefill, decode := start("prefill"), start("decode")
	out, err := runCheck("--probe", "--prefill", prefill.URL(), "--decode", decode.URL())
	if err != nil || !strings.HasSuffix(out, "\nok\n") {
		t.Errorf("got %v\n%s", err, out)
	}
	l := prefill.Ledger()
	// The decode engine may tell the prefill engine that it has read only after its answer.
	for deadline := time.Now().Add(patience); l.Pinned != 0 && time.Now().Before(deadline); l = prefill.Ledger() {
		time.Sleep(time.Millisecond)
	}
	if l.Pinned != 0 || l.FreedBy["read"] != 1 {
		t.Errorf("after one round the prefill engine has %d blocks pinned, freed by %v; want one read", l.Pinned, l.FreedBy)
	}
	out, err = runCheck("--probe", "--prefill", belowPath(t, "/vllm-a", prefill.URL()), "--decode", belowPath(t, "/b/c", decode.URL()))
	if err != nil || !strings.HasSuffix(out, "\nok\n") {
		t.Errorf("engines below a path: %v\n%s", err, out)
	}
	out, err = runCheck("--probe", "--prefill", prefill.URL(), "--decode", start("both").URL())
	if err == nil || !strings.Contains(out, "decode answered without pulling the blocks") {
		t.Errorf("a decode engine without a connector: got %v\n%s", err, out)
	}
}

// belowPath serves an engine below a path, and nothing beside it.
func belowPath(t *testing.T, path, engine string) string {
	t.Helper()
	to, err := url.Parse(engine)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(path+"/", http.StripPrefix(path, httputil.NewSingleHostReverseProxy(to)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + path
}

func TestCheckProbeNamesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		set  func(prefill, decode *stubEngine)
		args []string
		want string // P and D stand for the two URLs
	}{
		{"unhealthy", func(p, _ *stubEngine) { p.unhealthy = true }, nil,
			"does not fit: prefill P is not healthy: status 503"},
		{"models differ", func(_, d *stubEngine) { d.model = "other" }, nil,
			`does not fit: decode D serves the models ["other"], prefill P serves ["m"]; give all the same --served-model-name`},
		{"versions differ", func(p, _ *stubEngine) { p.version = "0.33.0" }, nil,
			"does not fit: prefill P is vLLM 0.33.0 and decode D is 0.32.0; connectors of two versions refuse each other"},
		{"release by rejection on an old engine", func(p, d *stubEngine) { p.version, d.version = "0.31.1", "0.31.1" }, []string{"--kv-release=reject"},
			"does not fit: decode D is vLLM 0.31.1, which frees no blocks on a rejected request; set kv.release to auto or update to 0.32"},
		{"no connector on prefill", func(p, _ *stubEngine) { p.handleHost = "" }, nil,
			`does not fit: prefill P with decode D: prefill answered without kv_transfer_params; start it with --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'`},
		{"no connector on decode", func(_, d *stubEngine) { d.pulls = false }, nil,
			`does not fit: prefill P with decode D: decode answered without pulling the blocks; start it with --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'`},
		{"invalid handle", func(p, _ *stubEngine) { p.handlePort = `"5600"` }, nil,
			"kv_transfer_params.remote_port"},
		{"host not allowed", nil, []string{"--kv-allow-hosts=10.0.0.1"},
			`does not fit: prefill P with decode D: prefill's remote_host "127.0.0.1" is not in kv.allow_hosts`},
		{"decode fails", func(_, d *stubEngine) { d.decodeStatus = 500 }, nil,
			`does not fit: prefill P with decode D: decode: status 500, "load failed"`},
		{"key missing", func(p, d *stubEngine) { p.key, d.key = "sesame", "sesame" }, nil,
			"does not fit: prefill P does not list its models: status 401; give the key that the engine takes in backend_api_key_file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prefill, decode := newStub(), newStub()
			if tc.set != nil {
				tc.set(prefill, decode)
			}
			p, d := prefill.start(t), decode.start(t)
			out, err := runCheck(append([]string{"--probe", "--prefill", p, "--decode", d}, tc.args...)...)
			if err == nil || !strings.HasPrefix(err.Error(), "check: ") {
				t.Errorf("got error %v, want one of check", err)
			}
			if got := strings.NewReplacer(p, "P", d, "D").Replace(out); !strings.Contains(got, tc.want) {
				t.Errorf("got\n%s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestCheckProbeUnreachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	url := srv.URL
	srv.Close()
	out, err := runCheck("--probe", "--decode", url)
	if err == nil || !strings.Contains(out, "does not fit: decode "+url+" is not healthy: ") || !strings.Contains(out, "connection refused") {
		t.Errorf("got %v\n%s", err, out)
	}
}

// An old engine works at a price. The check prints a note and exits with 0.
func TestCheckProbeNotesOldVersion(t *testing.T) {
	prefill, decode := newStub(), newStub()
	prefill.version, decode.version = "0.31.1", "0.31.1"
	out, err := runCheck("--probe", "--prefill", prefill.start(t), "--decode", decode.start(t))
	if err != nil || !strings.Contains(out, "is vLLM 0.31.1: an abandoned prefill costs a decode of one token") {
		t.Errorf("got %v\n%s", err, out)
	}
}

// While engines are upgraded one by one, those of one version make pairs. The others are not tried.
func TestCheckProbePairsEnginesOfOneVersion(t *testing.T) {
	var urls []string
	var stubs []*stubEngine
	for _, version := range []string{"0.32.0", "0.33.0", "0.33.0", "0.32.0"} {
		e := newStub()
		e.version = version
		stubs, urls = append(stubs, e), append(urls, e.start(t))
	}
	out, err := runCheck("--probe", "--prefill", urls[0], "--prefill", urls[1], "--decode", urls[2], "--decode", urls[3])
	if err != nil || strings.Count(out, "xpyd pairs only engines of one version") != 2 {
		t.Errorf("got %v\n%s", err, out)
	}
	for i, e := range stubs {
		if n := len(e.asked()); n != 1 {
			t.Errorf("engine %d had %d requests, want one", i, n)
		}
	}
}

func TestCheckReachable(t *testing.T) {
	for _, tc := range []struct {
		host, prefill, decode string
		ok                    bool
	}{
		{"127.0.0.1", "http://localhost:1", "http://127.0.0.1:2", true},
		{"127.0.0.1", "http://10.0.0.1:1", "http://10.0.0.1:2", true},
		{"127.0.0.1", "http://10.0.0.1:1", "http://10.0.0.2:2", false},
		{"localhost", "http://p:1", "http://d:2", false},
		{"::1", "http://p:1", "http://d:2", false},
		{"0.0.0.0", "http://p:1", "http://d:2", false},
		{"10.0.0.1", "http://10.0.0.1:1", "http://10.0.0.2:2", true},
	} {
		p := engineProber{cfg: config.Default()}
		err := p.reachable(tc.host, &round{prefill: tc.prefill, decode: tc.decode})
		if (err == nil) != tc.ok {
			t.Errorf("%s from %s to %s: %v", tc.host, tc.decode, tc.prefill, err)
		}
		if err != nil && !strings.Contains(err.Error(), "VLLM_NIXL_SIDE_CHANNEL_HOST") {
			t.Errorf("%v does not name the variable to set", err)
		}
	}
}

// Prefill's answer takes longer than its lease, so that decode would read blocks of other prompts.
func TestCheckProbeHeedsTheLease(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	p := startSim(t, sim.Options{Role: sim.RolePrefill, Lease: lease})
	d := startSim(t, sim.Options{Role: sim.RoleDecode})
	if err := p.SetFault(sim.Fault{Kind: sim.FaultDrip, At: 30, Delay: 100 * time.Millisecond, Leg: "P"}); err != nil {
		t.Fatal(err)
	}
	out, err := runCheck("--probe", "--kv-lease", lease.String(), "--prefill", p.URL(), "--decode", d.URL())
	if err == nil || !strings.Contains(out, "uses no handle older than kv.lease - kv.lease_margin") {
		t.Errorf("%v\n%s", err, out)
	}
	if n := p.Ledger().StaleReads; n != 0 {
		t.Errorf("%d reads of blocks that were free", n)
	}
}
