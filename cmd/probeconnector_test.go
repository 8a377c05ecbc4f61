package cmd

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"xpyd/sim"
)

// told is an engine that says of itself what a vLLM says with VLLM_SERVER_DEV_MODE=1.
func told(t *testing.T, e *sim.Engine, transferConfig string) string {
	t.Helper()
	u, err := url.Parse(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	engine := httputil.NewSingleHostReverseProxy(u)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/server_info" && q.URL.RawQuery == "config_format=json" {
			_, _ = io.WriteString(w, `{"vllm_config":{"model_config":{"model":"m"},"kv_transfer_config":`+transferConfig+`},"vllm_env":{}}`)
			return
		}
		engine.ServeHTTP(w, q)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestCheckComparesTheConnectorThatAnEngineTells(t *testing.T) {
	t.Parallel()
	for transferConfig, want := range map[string]string{
		`{"kv_connector":"NixlPullConnector","kv_role":"kv_consumer"}`:                                                                                                               "",
		`{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_connector_extra_config":{}}`:                                                                                    "",
		`{"kv_connector":"MultiConnector","kv_connector_extra_config":{"connectors":[{"kv_connector":"NixlConnector","kv_role":"kv_both"},{"kv_connector":"OffloadingConnector"}]}}`: "",
		`{"kv_connector":"MooncakeConnector","kv_role":"kv_consumer","kv_connector_extra_config":{}}`:                                                                                "says that it has MooncakeConnector, and it is configured with connector nixl, which is NixlConnector; put its own connector after its URL (connector=NAME), or start it with --kv-transfer-config",
		`null`: `says that it has no connector; start it with --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'`,
	} {
		p := startSim(t, sim.Options{Role: sim.RolePrefill})
		d := startSim(t, sim.Options{Role: sim.RoleDecode})
		decode := told(t, d, transferConfig)
		out, err := runCheck("--listen=127.0.0.1:1", "--probe", "--prefill", p.URL(), "--decode", decode)
		if (err == nil) != (want == "") || !strings.Contains(out, want) || want != "" && !strings.Contains(out, "decode "+decode+" says") {
			t.Errorf("%s: %v\n%s", transferConfig, err, out)
		}
		expectNothingPinned(t, []*sim.Engine{p})
	}
}

// Of several connectors, only engines of one make a round. Their models and versions are their own.
func TestCheckProbesSeveralConnectors(t *testing.T) {
	var pools [2][]string
	var engines []*sim.Engine
	for _, c := range []sim.Connector{sim.ConnectorNixl, sim.ConnectorMooncake} {
		for i, role := range []sim.Role{sim.RolePrefill, sim.RoleDecode} {
			o := sim.Options{Role: role, Connector: c, Model: "model-of-" + string(c)}
			if c == sim.ConnectorMooncake {
				o.Version = "0.32.1"
			}
			e := startSim(t, o)
			entry := e.URL()
			if c == sim.ConnectorMooncake {
				entry += " connector=mooncake"
			}
			if port := e.BootstrapPort(); port > 0 {
				entry += fmt.Sprintf(" bootstrap=%d", port)
			}
			pools[i] = append(pools[i], entry)
			engines = append(engines, e)
		}
	}
	out, err := runCheck("--listen=127.0.0.1:1", "--probe", "--prefill", strings.Join(pools[0], ","), "--decode", strings.Join(pools[1], ","))
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, e := range engines {
		if n := strings.Count(out, e.URL()); n != 3 { // the pools, its own line, its round
			t.Errorf("%s stands %d times in\n%s", e.URL(), n, out)
		}
	}
	// One of them said of the wrong connector: no KV comes, and the check says so.
	wrong := strings.Replace(pools[1][1], " connector=mooncake", "", 1)
	out, err = runCheck("--listen=127.0.0.1:1", "--probe", "--prefill", pools[0][0], "--decode", pools[1][0]+","+wrong)
	if err == nil || !strings.Contains(out, strings.Fields(wrong)[0]) {
		t.Errorf("%v\n%s", err, out)
	}
	expectNothingPinned(t, engines)
}
