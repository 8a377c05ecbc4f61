package cmd

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"xpyd/bench/verify"
	"xpyd/cmd/config"
	"xpyd/router"
	"xpyd/sim"
)

// An engine that can encode is found fit, by a request like those of serve.
func TestCheckAsksEncodeEngines(t *testing.T) {
	e, p, d := startSim(t, sim.Options{Role: sim.RoleEncode}), startSim(t, sim.Options{Role: sim.RolePrefill}), startSim(t, sim.Options{Role: sim.RoleDecode})
	out, err := runCheck("--listen=127.0.0.1:1", "--probe", "--encode", e.URL(), "--prefill", p.URL(), "--decode", d.URL())
	if err != nil || !strings.Contains(out, "encode   "+e.URL()+"  ok") || strings.Contains(out, "note:") {
		t.Errorf("%v\n%s", err, out)
	}
	recs := e.Requests()
	if len(recs) != 1 || recs[0].Media != 1 || recs[0].MaxTokens != 1 || recs[0].Path != "/v1/chat/completions" || e.Ledger().Encoded != 1 {
		t.Errorf("the encode engine had %+v", recs)
	}
}

// refuses is an engine that answers what one of its kind would to a part of a chat of this type.
func refuses(t *testing.T, e *sim.Engine, kind, answer string) string {
	t.Helper()
	u, err := url.Parse(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	engine := httputil.NewSingleHostReverseProxy(u)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if strings.Contains(string(body), `"type":"`+kind) {
			if strings.Contains(answer, `"error"`) {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = io.WriteString(w, answer)
			return
		}
		q.Body = io.NopCloser(strings.NewReader(string(body)))
		engine.ServeHTTP(w, q)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestCheckFindsEncodeEnginesThatDoNotFit(t *testing.T) {
	t.Parallel()
	const refusal = `{"error":{"message":"m is not a multimodal model","code":400}}`
	for _, tc := range []struct {
		name   string
		kind   string // of the part that the engine answers oddly; "" for none
		answer string
		model  string
		args   []string
		want   string
		fits   bool
	}{
		{name: "no encoder", kind: "i", answer: refusal, want: `does not encode: status 400, "m is not a multimodal model"`},
		{name: "sounds alone", kind: "image_url", answer: refusal, want: "\nok\n", fits: true},
		{name: "no connector", kind: "image_url", answer: `{"choices":[],"ec_transfer_params":null}`, want: "does not say where its encodings are", fits: true},
		{name: "no object", kind: "image_url", answer: `{"ec_transfer_params":"x"}`, want: "encode answer: ec_transfer_params must stand once and be an object"},
		{name: "another host", args: []string{"--kv-allow-hosts", "127.0.0.1"}, kind: "image_url", answer: `{"ec_transfer_params":{"8f":{"peer_host":"10.9.9.9"}}}`,
			want: `says that its encodings are at "10.9.9.9", which is not in kv.allow_hosts`},
		{name: "another model", model: "other", want: `serves the models ["other"], and no prefill or decode engine serves one of them`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, p, d := startSim(t, sim.Options{Role: sim.RoleEncode, Model: tc.model}), startSim(t, sim.Options{Role: sim.RolePrefill}), startSim(t, sim.Options{Role: sim.RoleDecode})
			at := e.URL()
			if tc.kind != "" {
				at = refuses(t, e, tc.kind, tc.answer)
			}
			out, err := runCheck(append([]string{"--listen=127.0.0.1:1", "--probe", "--encode", at, "--prefill", p.URL(), "--decode", d.URL()}, tc.args...)...)
			if (err == nil) != tc.fits || !strings.Contains(out, tc.want) || tc.want != "\nok\n" && !strings.Contains(out, "encode "+at) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	e, p, d := startSim(t, sim.Options{Role: sim.RoleEncode}), startSim(t, sim.Options{Role: sim.RolePrefill}), startSim(t, sim.Options{Role: sim.RoleDecode})
	at := e.URL()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := runCheck("--listen=127.0.0.1:1", "--probe", "--encode", at, "--prefill", p.URL(), "--decode", d.URL()); err == nil || !strings.Contains(out, "encode "+at+" is not healthy") {
		t.Errorf("a dead engine: %v\n%s", err, out)
	}
}

// An encode engine names a loopback host, which is of no use to a decode engine elsewhere unless serve replaces it.
func TestCheckFindsEncodingsThatAreLocal(t *testing.T) {
	for _, tc := range []struct {
		prefill, decode string // as the check knows them; "" for their own address
		rewrite         bool
		fault           string
	}{
		{},
		{decode: "decode.example:8000", fault: `says that its encodings are at "localhost", which decode http://decode.example:8000 on another host cannot reach`},
		{prefill: "prefill.example:8000", fault: `says that its encodings are at "localhost", which prefill http://prefill.example:8000 on another host cannot reach`},
		{decode: "decode.example:8000", rewrite: true},
	} {
		e, p, d := startSim(t, sim.Options{Role: sim.RoleEncode}), startSim(t, sim.Options{Role: sim.RolePrefill}), startSim(t, sim.Options{Role: sim.RoleDecode})
		at := refuses(t, e, "image_url", `{"choices":[],"ec_transfer_params":{"8f":{"peer_host":"localhost","peer_port":9}}}`)
		c := config.Default()
		names := map[string]string{}
		url := func(name string, e *sim.Engine) []router.Entry {
			if name == "" {
				return router.MustEntries(e.URL())
			}
			names[name] = strings.TrimPrefix(e.URL(), "http://")
			return router.MustEntries("http://" + name)
		}
		c.Router.Encode, c.Router.Prefill, c.Router.Decode, c.KV.RewriteLoopback = router.MustEntries(at), url(tc.prefill, p), url(tc.decode, d), tc.rewrite
		prober := newEngineProber(c, &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if to := names[addr]; to != "" { // no name server knows it
				addr = to
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}, DisableKeepAlives: true})
		prober.run(context.Background())
		faults := strings.Join(prober.faults, "\n")
		if tc.fault == "" && strings.Contains(faults, "encodings") || !strings.Contains(faults, tc.fault) {
			t.Errorf("%+v: %s", tc, faults)
		}
	}
}

// A vLLM in development mode says its role among those that share encodings.
func TestCheckComparesTheRoleThatAnEngineTells(t *testing.T) {
	t.Parallel()
	const without = "says that it has no connector for encodings; start it with --ec-transfer-config and ec_role "
	for _, tc := range []struct{ encode, prefill, want string }{
		{`{"ec_connector":"ECExampleConnector","ec_role":"ec_producer"}`, `{"ec_connector":"ECExampleConnector","ec_role":"ec_consumer"}`, ""},
		{`{"ec_connector":"ECExampleConnector","ec_role":"ec_both"}`, `{"ec_connector":"ECExampleConnector","ec_role":"ec_both"}`, ""},
		{`null`, `{"ec_connector":"ECExampleConnector","ec_role":"ec_consumer"}`, without + "ec_producer"},
		{`{"ec_connector":"ECExampleConnector","ec_role":"ec_consumer"}`, `{"ec_connector":"ECExampleConnector","ec_role":"ec_consumer"}`, "says that its ec_role is ec_consumer, and here it must be ec_producer"},
		{`{"ec_connector":"ECExampleConnector","ec_role":"ec_producer"}`, `null`, without + "ec_consumer"},
	} {
		e, p, d := startSim(t, sim.Options{Role: sim.RoleEncode}), startSim(t, sim.Options{Role: sim.RolePrefill}), startSim(t, sim.Options{Role: sim.RoleDecode})
		kv := `{"kv_connector":"NixlConnector","kv_role":"kv_producer"},"ec_transfer_config":`
		out, err := runCheck("--listen=127.0.0.1:1", "--probe", "--encode", told(t, e, "null,\"ec_transfer_config\":"+tc.encode), "--prefill", told(t, p, kv+tc.prefill), "--decode", d.URL())
		if (err == nil) != (tc.want == "") || !strings.Contains(out, tc.want) {
			t.Errorf("%s, %s: %v\n%s", tc.encode, tc.prefill, err, out)
		}
		expectNothingPinned(t, []*sim.Engine{p})
	}
}

// An encode pool may serve one model of several. Engines of the others need no connector for encodings.
func TestCheckAsksEnginesOfAnotherModelNothingOfEncodings(t *testing.T) {
	e, p, d := startSim(t, sim.Options{Role: sim.RoleEncode}), startSim(t, sim.Options{Role: sim.RolePrefill}), startSim(t, sim.Options{Role: sim.RoleDecode})
	other := sim.Options{Role: sim.RolePrefill, Connector: sim.ConnectorPush, Model: "of-texts"}
	p2 := startSim(t, other)
	other.Role = sim.RoleDecode
	d2 := startSim(t, other)
	none := told(t, p2, `{"kv_connector":"NixlPushConnector","kv_role":"kv_producer"},"ec_transfer_config":null`)
	const push = " connector=nixl-push"
	out, err := runCheck("--listen=127.0.0.1:1", "--probe", "--encode", e.URL(), "--prefill", p.URL()+","+none+push, "--decode", d.URL()+","+d2.URL()+push)
	if err != nil || strings.Contains(out, "encodings") {
		t.Errorf("%v\n%s", err, out)
	}
	expectNothingPinned(t, []*sim.Engine{p, p2})
}

// The row encode finds engines that get no items, and others that do not encode.
func TestVerifyOfEncodeEngines(t *testing.T) {
	t.Parallel()
	e := startSim(t, sim.Options{Role: sim.RoleEncode})
	idle := startSim(t, sim.Options{Role: sim.RoleEncode})
	x := deploy(t, func(_, _ *sim.Options, c *config.Config) { c.Router.Encode = router.MustEntries(e.URL()) })
	rest := []string{}
	for _, row := range verify.Names() {
		if row != "encode" && row != "handles" {
			rest = append(rest, row)
		}
	}
	skip := "--skip=" + strings.Join(rest, ",")
	not, err := x.rows(t, "--encode", e.URL(), skip)
	if err != nil {
		t.Error(err)
	}
	checkFailed(t, not, nil)
	if n := e.Ledger().Encoded; n != 3 {
		t.Errorf("the encode engine encoded %d items, want one that it was asked for and two through xpyd", n)
	}
	not, _ = x.rows(t, "--encode", idle.URL(), skip)
	checkFailed(t, not, map[string]string{"encode": "of 2 items the encode engines had 0", "handles": "xpyd's encode engines are " + e.URL() + ", but the command names " + idle.URL()})
	at := refuses(t, e, "i", `{"error":{"message":"no encoder","code":400}}`)
	not, _ = x.rows(t, "--encode", at, skip, "--skip=handles")
	checkFailed(t, not, map[string]string{"encode": fmt.Sprintf("encode %s does not encode: status 400, no encoder", at)})
}
