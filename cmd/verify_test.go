package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/bench/verify"
	"xpyd/cmd/config"
	"xpyd/cmd/daemon"
	"xpyd/router"
	"xpyd/sim"
)

// verifyLease is that of the engines in these tests, which wait for its end.
const verifyLease = 5 * time.Second

// deployment is a proxy over one prefill and one decode engine.
type deployment struct {
	prefill, decode *sim.Engine
	url, admin      string
}

// deploy starts one. fault changes what it is made of.
func deploy(t *testing.T, fault func(p, d *sim.Options, c *config.Config)) deployment {
	t.Helper()
	p := sim.Options{Role: sim.RolePrefill, Lease: verifyLease, ToolCallParser: "hermes", TokenLatency: time.Millisecond}.Fast()
	d := p
	d.Role = sim.RoleDecode
	cfg := config.Default()
	if fault != nil {
		fault(&p, &d, &cfg)
	}
	x := deployment{prefill: startSim(t, p), decode: startSim(t, d)}
	cfg.Listen, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Warmup = false // the checks count what engines do, and a late warm-up is counted too
	cfg.Router.Prefill, cfg.Router.Decode = router.MustEntries(x.prefill.URL()), append(cfg.Router.Decode, router.MustEntries(x.decode.URL())...)
	proxy, err := daemon.Start(cfg, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	x.url, x.admin = "http://"+proxy.Addr, "http://"+proxy.AdminAddr
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(x.url + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			return x
		}
		if time.Now().After(end) {
			t.Fatal("the proxy is not ready")
		}
	}
}

// behind puts a proxy in front of xpyd, which spoil and wrap change.
func (x *deployment) behind(t *testing.T, spoil func(*httputil.ReverseProxy), wrap func(http.Handler) http.Handler) {
	t.Helper()
	target, err := url.Parse(x.url)
	if err != nil {
		t.Fatal(err)
	}
	p := httputil.NewSingleHostReverseProxy(target)
	p.FlushInterval = -1
	var h http.Handler = p
	if spoil != nil {
		spoil(p)
	}
	if wrap != nil {
		h = wrap(p)
	}
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	x.url = front.URL
}

// rows runs xpyd verify --json and returns the rows that are not ok, by name.
func (x deployment) rows(t *testing.T, args ...string) (not map[string]verify.Row, err error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCmd()
	root.SetOut(&out)
	root.SetArgs(append([]string{"verify", "--json", "--url", x.url, "--admin", x.admin, "--kv-lease", verifyLease.String(),
		"--settle", "4s", "--prefill", x.prefill.URL(), "--decode", x.decode.URL()}, args...))
	err = root.ExecuteContext(t.Context())
	var report verify.Report
	if broken := json.Unmarshal(out.Bytes(), &report); broken != nil {
		t.Fatalf("%v, %v:\n%s", broken, err, out.String())
	}
	not = map[string]verify.Row{}
	for _, row := range report.Rows {
		if row.State != verify.OK {
			not[row.Check] = row
		}
	}
	if report.OK != (len(not) == 0) || report.OK != (err == nil) {
		t.Errorf("ok is %v, the error %v, with %d rows that are not ok", report.OK, err, len(not))
	}
	return not, err
}

// rowsFor is rows, once more if nothing but the row lease is not as wanted: a machine that stalls measures a wrong time.
func (x deployment) rowsFor(t *testing.T, want map[string]string, args ...string) (not map[string]verify.Row, err error) {
	t.Helper()
	var lease verify.State
	if _, ok := want["lease"]; ok {
		lease = verify.Fail
	}
	not, err = x.rows(t, args...)
	others := maps.Clone(not)
	if delete(others, "lease"); len(others) == 0 && not["lease"].State != lease {
		return x.rows(t, args...)
	}
	return not, err
}

// checkFailed: these rows, and no others, FAIL, each for a reason that has the text.
func checkFailed(t *testing.T, not map[string]verify.Row, want map[string]string) {
	t.Helper()
	for name, reason := range want {
		if row := not[name]; row.State != verify.Fail || !strings.Contains(row.Detail, reason) {
			t.Errorf("row %q is %q: %q, want FAIL and %q", name, row.State, row.Detail, reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(not)) {
		if _, ok := want[name]; !ok {
			t.Errorf("row %q is %q as well: %s", name, not[name].State, not[name].Detail)
		}
	}
}

// Engines that have made the whole answer before they can hear that the client left do nothing wrong.
func TestVerifyOfEnginesThatAreQuickerThanItsClients(t *testing.T) {
	t.Parallel()
	x := deploy(t, func(p, d *sim.Options, _ *config.Config) {
		p.TokenLatency, d.TokenLatency, p.MaxModelLen, d.MaxModelLen = -1, -1, 1000, 1000
	})
	x.behind(t, func(p *httputil.ReverseProxy) { // a client hears nothing before decode is done, however slow it is
		p.ModifyResponse = func(r *http.Response) error {
			whole, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(whole))
			return err
		}
	}, nil)
	others := slices.DeleteFunc(verify.Names(), func(name string) bool { return name == "client leaves" })
	not, err := x.rows(t, "--skip", strings.Join(others, ","))
	row := not["client leaves"]
	if row.State != verify.Unknown || !strings.Contains(row.Detail, "before it can hear that a client left") || err == nil {
		t.Errorf("%q: %s, %v", row.State, row.Detail, err)
	}
}

func TestVerifyFindsNothingWrong(t *testing.T) {
	t.Parallel()
	x := deploy(t, nil)
	not, err := x.rowsFor(t, nil)
	if err != nil {
		t.Error(err)
	}
	checkFailed(t, not, nil)
}

// The row handles needs the token of an admin port that has one, and of all keys shows it that one.
func TestVerifyShowsTheAdminPortItsToken(t *testing.T) {
	t.Parallel()
	x := deploy(t, func(_, _ *sim.Options, c *config.Config) { c.AdminToken = "sesame" })
	only := []string{"--skip", "lease", "--skip", "client leaves", "--backend-api-key-file", writeFile(t, "key", "other\n", 0o600)}
	if not, _ := x.rows(t, only...); not["handles"].State == "" {
		t.Errorf("row handles is ok without the token: %v", not)
	}
	not, err := x.rows(t, append(only, "--admin-token-file", writeFile(t, "token", "sesame\n", 0o600))...)
	if err != nil {
		t.Error(err)
	}
	checkFailed(t, not, nil)
}

// TestVerifyFindsAFault plants one fault at a time.
func TestVerifyFindsAFault(t *testing.T) {
	t.Parallel()
	wrongText := "differs from character"
	for _, tc := range []struct {
		name  string
		fault func(p, d *sim.Options, c *config.Config)
		set   sim.Fault // of prefill
		args  []string
		want  map[string]string
	}{
		{name: "prefill has no connector", fault: func(p, _ *sim.Options, _ *config.Config) { p.Role = sim.RoleBoth },
			args: []string{"--skip", "lease"},
			want: map[string]string{"path": "no_handle", "pull": "decode pulled 0 of"}},
		{name: "prefill has other weights", fault: func(p, _ *sim.Options, _ *config.Config) { p.Weights = "another revision" },
			args: []string{"--skip", "lease,tools,EOS first,logprobs"},
			want: map[string]string{"completions": wrongText, "completions streamed": wrongText, "chat": wrongText, "chat streamed": wrongText, "one token": wrongText}},
		{name: "decode alone", fault: func(_, _ *sim.Options, c *config.Config) { c.Router.PD.Mode = "never" },
			args: []string{"--skip", "lease"},
			want: map[string]string{"path": "pd_never", "request id": "the prefill engines finished 0", "prefill": "had 0 of", "pull": "decode pulled 0 of"}},
		{name: "decode hides failed transfers", fault: func(_, d *sim.Options, _ *config.Config) { d.LoadFailure = "recompute" },
			set: sim.Fault{Kind: sim.FaultBadHandle, Arg: "engine"}, args: []string{"--skip", "lease,client leaves,rejected"},
			want: map[string]string{"pull": "decode pulled 0 of"}},
		{name: "the lease is longer", fault: func(p, _ *sim.Options, _ *config.Config) { p.Lease = 4 * verifyLease },
			want: map[string]string{"lease": "kv.lease is 5s, and blocks were held for"}},
		{name: "the lease is shorter", fault: func(p, _ *sim.Options, _ *config.Config) { p.Lease = verifyLease * 2 / 5 },
			want: map[string]string{"lease": "kv.lease is 5s, and blocks were held for"}},
		{name: "versions differ", fault: func(p, d *sim.Options, _ *config.Config) { p.Version, d.LoadFailure = "0.33.0", "recompute" },
			args: []string{"--skip", "lease,client leaves,rejected,pull"},
			want: map[string]string{"engines": "vLLM 0.33.0 and 0.32.0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			x := deploy(t, tc.fault)
			if err := x.prefill.SetFault(tc.set); err != nil {
				t.Fatal(err)
			}
			not, err := x.rowsFor(t, tc.want, tc.args...)
			if err == nil {
				t.Error("verify finds nothing wrong")
			}
			checkFailed(t, not, tc.want)
		})
	}
}

// TestVerifyFindsAFaultyProxy puts another proxy before xpyd, which does what xpyd must not.
func TestVerifyFindsAFaultyProxy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		fault func(p, d *sim.Options, c *config.Config)
		skip  string
		spoil func(*httputil.ReverseProxy)
		wrap  func(http.Handler) http.Handler
		want  map[string]string
	}{
		{name: "does not tell who has left", skip: ",rejected", fault: func(_, d *sim.Options, _ *config.Config) {
			d.TokenLatency = 2 * time.Millisecond // the answers take longer than it is waited for their end
		}, wrap: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(deaf{w}, r.WithContext(context.WithoutCancel(r.Context())))
			})
		}, want: map[string]string{"client leaves": "s after their clients left prefill still works on 0 requests and decode on "}},
		{name: "has errors of its own", spoil: func(p *httputil.ReverseProxy) {
			p.ModifyResponse = func(r *http.Response) error {
				if r.StatusCode == http.StatusBadRequest {
					r.StatusCode = http.StatusBadGateway
				}
				return nil
			}
		}, want: map[string]string{"rejected": "status 502, decode alone answers 400"}},
		{name: "loses the last event", spoil: func(p *httputil.ReverseProxy) {
			p.ModifyResponse = func(r *http.Response) error {
				if strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
					r.Body = io.NopCloser(&withoutDone{in: r.Body})
				}
				return nil
			}
		}, want: map[string]string{"completions streamed": "without [DONE]", "chat streamed": "without [DONE]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			x := deploy(t, tc.fault)
			x.behind(t, tc.spoil, tc.wrap)
			not, _ := x.rows(t, "--skip", "lease,EOS first,one token,n=2,logprobs,tools,handles"+tc.skip)
			checkFailed(t, not, tc.want)
		})
	}
}

// deaf goes on writing to a client that has left.
type deaf struct{ http.ResponseWriter }

func (d deaf) Write(b []byte) (int, error) {
	_, _ = d.ResponseWriter.Write(b)
	return len(b), nil
}

func (d deaf) Flush() { _ = http.NewResponseController(d.ResponseWriter).Flush() }

// withoutDone cuts a stream before its [DONE].
type withoutDone struct{ in io.Reader }

func (w *withoutDone) Read(b []byte) (int, error) {
	n, err := w.in.Read(b)
	if i := bytes.Index(b[:n], []byte("data: [DONE]")); i >= 0 {
		return i, io.EOF
	}
	return n, err
}

// TestVerifyDoesNotJudgeABusyDeployment: what only counters of an idle deployment can tell is unknown. The rows about both legs
// are decided by long prompts, and the answers are compared all the same.
func TestVerifyDoesNotJudgeABusyDeployment(t *testing.T) {
	t.Parallel()
	x := deploy(t, nil)
	defer x.occupied(t)()
	not, err := x.rows(t, "--skip", "handles")
	if err == nil || !strings.Contains(err.Error(), "are not decided") {
		t.Error(err)
	}
	var unknown []string
	for name, row := range not {
		if row.State != verify.Unknown || !strings.Contains(row.Detail, "busy") {
			t.Errorf("row %q is %q: %s", name, row.State, row.Detail)
		}
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	if want := []string{"client leaves", "lease", "rejected"}; !slices.Equal(unknown, want) {
		t.Errorf("unknown are %q, want %q", unknown, want)
	}
}

// occupied has another client send requests, one after the other, until end is called.
func (x deployment) occupied(t *testing.T) (end func()) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			body := completionBody(fmt.Sprint("another client ", i), 20, false)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, x.url+"/v1/completions", strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
	}()
	return func() { stop(); <-done }
}

// TestVerifySeesBesideOthersThatNothingIsPulled: the prompts of this command show it although others move the same counters.
func TestVerifySeesBesideOthersThatNothingIsPulled(t *testing.T) {
	t.Parallel()
	x := deploy(t, func(_, d *sim.Options, _ *config.Config) { d.LoadFailure = "recompute" })
	if err := x.prefill.SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: "engine"}); err != nil {
		t.Fatal(err)
	}
	defer x.occupied(t)()
	not, _ := x.rows(t, "--skip", "handles,lease,client leaves,rejected,EOS first")
	if row := not["pull"]; row.State != verify.Fail || !strings.Contains(row.Detail, "decode pulled 0 of") {
		t.Errorf("the row pull is %q: %s", row.State, row.Detail)
	}
}

// TestVerifyShortPrompts: prompts that are too short for a prefill by choice decide nothing.
func TestVerifyShortPrompts(t *testing.T) {
	t.Parallel()
	x := deploy(t, func(_, _ *sim.Options, c *config.Config) { c.Router.PD.ThresholdTokens = 10_000 })
	not, _ := x.rowsFor(t, nil, "--skip", "lease")
	for _, name := range []string{"path", "request id", "prefill", "pull"} {
		if row := not[name]; row.State != verify.Unknown || !strings.Contains(row.Detail, "(short_prompt)") {
			t.Errorf("row %q is %q: %s", name, row.State, row.Detail)
		}
		delete(not, name)
	}
	checkFailed(t, not, nil)
}

// TestVerifyPools: xpyd has an engine that was not named.
func TestVerifyPools(t *testing.T) {
	t.Parallel()
	other := startSim(t, sim.Options{Role: sim.RoleDecode}.Fast())
	x := deploy(t, func(_, _ *sim.Options, c *config.Config) { c.Router.Decode = router.MustEntries(other.URL()) })
	not, _ := x.rows(t, "--skip", "lease,client leaves,rejected")
	if row := not["handles"]; row.State != verify.Fail || !strings.Contains(row.Detail, "xpyd's decode engines are "+other.URL()) {
		t.Errorf("%+v", row)
	}
}

// TestVerifyRanks: xpyd has engines as ranks that were written, and as those that they tell. The command names them as
// xpyd's own flags do, or without ranks. A rank of xpyd that is of no named engine is still found.
func TestVerifyRanks(t *testing.T) {
	t.Parallel()
	p, d := frontOf(t, sim.RolePrefill, 2), frontOf(t, sim.RoleDecode, 2)
	proxy := serveProcess(t, []string{p + "@0..1"}, []string{d + "@auto"}, quickChecks...)
	eventually(t, "all ranks are up", func() bool {
		_, text := proxy.get(proxy.admin, "/metrics")
		return len(regexp.MustCompile(`(?m)^xpyd_backend_up\{.* 1$`).FindAllString(text, -1)) == 4
	})
	skip := slices.DeleteFunc(verify.Names(), func(row string) bool { return row == "engines" || row == "path" || row == "handles" })
	for _, tc := range []struct{ prefill, decode, want string }{
		{p + "@0..1", d + "@auto", ""}, {p + "/," + p + "@1", d, ""}, {p + "@auto", d + "@0," + d + "@1 weight=2", ""},
		{strings.Replace(p, "http://", "HTTP://", 1), d, ""}, // as xpyd has it, whose pools are in lower case
		{p, p, "xpyd's decode engines are " + d + ", but the command names " + p},
	} {
		out, err := proxy.ctl("verify", "--url", "http://"+proxy.addr, "--skip", strings.Join(skip, ","),
			"--prefill", tc.prefill, "--decode", tc.decode)
		if tc.want == "" && (err != nil || !strings.Contains(out, "1 prefill and 1 decode")) || !strings.Contains(out, tc.want) {
			t.Errorf("%+v: %v\n%s", tc, err, out)
		}
	}
	proxy.signal(proxy.serving(1), syscall.SIGTERM)
	proxy.gone()
}

// TestVerifyKeys: xpyd and the engines want different keys, and neither stands in what is printed.
func TestVerifyKeys(t *testing.T) {
	t.Parallel()
	x := deploy(t, func(p, d *sim.Options, c *config.Config) {
		p.APIKey, d.APIKey = "engines-secret", "engines-secret"
		c.APIKeys, c.BackendAPIKey = []string{"clients-secret"}, "engines-secret"
	})
	dir := t.TempDir()
	var args []string
	for flag, key := range map[string]string{"--key-file": "clients-secret", "--backend-api-key-file": "engines-secret"} {
		file := filepath.Join(dir, key)
		if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, flag, file)
	}
	not, _ := x.rowsFor(t, nil, append(args, "--skip", "lease")...)
	checkFailed(t, not, nil)
	not, _ = x.rows(t, "--skip", "lease,client leaves,rejected,EOS first")
	if len(not) == 0 {
		t.Error("all is ok without keys")
	}
	for name, row := range not {
		if strings.Contains(row.Detail, "secret") {
			t.Errorf("row %q shows a key: %s", name, row.Detail)
		}
	}
}

func TestVerifyUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--prefill: name the prefill engines, or there is nothing to verify":                                {"--decode", "http://d:1"},
		"--decode: name the decode engines":                                                                 {"--prefill", "http://p:1"},
		"--decode: entry 1 must have ranks from 0 to 1023, the lower first; try http://127.0.0.1:8100@0..7": {"--prefill", "http://p:1", "--decode", "http://d:1@3..0"},
		`URL "p:1": want http://host:port`:                                                                  {"--prefill", "p:1", "--decode", "http://d:1"},
	} {
		var out bytes.Buffer
		root := newRootCmd()
		root.SetOut(&out)
		root.SetArgs(append([]string{"verify"}, args...))
		checkUsage(t, root.ExecuteContext(t.Context()), want)
	}
}

// The command's engines are those of xpyd however their URLs are written.
func TestVerifyNamesEnginesAsXpydDoes(t *testing.T) {
	got, err := wholeEngines([]string{"HTTP://P1.Example", "http://p1.example:80/", "https://D1@3", "http://[::1]:8000", "http://host/behind/a/path/"})
	if want := []string{"http://p1.example:80", "https://d1:443", "http://[::1]:8000", "http://host:80/behind/a/path"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
}
