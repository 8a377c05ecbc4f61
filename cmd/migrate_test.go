package cmd

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"xpyd/cmd/config"
)

// runRoot runs a command line and returns what it writes to standard output and to standard error.
func runRoot(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	root := newRootCmd()
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

var routerFlags = []string{"--vllm-pd-disaggregation", "--prefill", "http://p:1", "9000", "--decode", "http://d:1", "--policy", "round_robin"}

func TestMigratePrintsWhatServeReads(t *testing.T) {
	for _, dashes := range [][]string{nil, {"--"}} {
		out, errs, err := runRoot(t, append(append([]string{"migrate", "vllm-router"}, dashes...), routerFlags...)...)
		if err != nil || errs != "" || !strings.Contains(out, `prefill: ["http://p:1"]  # --vllm-pd-disaggregation, --prefill`) {
			t.Fatalf("%v, %q\n%s", err, errs, out)
		}
		path := writeFile(t, "xpyd.yaml", out, 0o600)
		fromFile, _, err := runRoot(t, "check", "--config", path)
		if err != nil {
			t.Fatal(err)
		}
		as, _, err := runRoot(t, append([]string{"check", "--as", "vllm-router", "--"}, routerFlags...)...)
		if want := "prefill: http://p:1 (round_robin)\ndecode: http://d:1 (round_robin)\nok\n"; err != nil || as != want || fromFile != want {
			t.Errorf("%v, got %q from the file and %q from the flags, want %q", err, fromFile, as, want)
		}
	}
}

// Without engines xpyd cannot start, but what is there is printed, and so are warnings.
func TestMigrateSaysWhatIsMissing(t *testing.T) {
	out, _, err := runRoot(t, "migrate", "vllm-router", "--service-discovery", "--selector", "app=vllm")
	checkUsage(t, err, "config: decode: needs at least one backend; try --decode http://127.0.0.1:8200, or --engine for one without a role (flag --decode, XPYD_DECODE)")
	if !strings.Contains(out, "#   --selector: xpyd does not ask Kubernetes") {
		t.Errorf("got\n%s", out)
	}
	_, errs, err := runRoot(t, append([]string{"migrate", "vllm-router", "--health-check-interval-secs", "60"}, routerFlags...)...)
	if err != nil || !strings.HasPrefix(errs, "warning: kv.lease") {
		t.Errorf("%v, %q", err, errs)
	}
}

func TestMigrateRefusals(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"migrate", "migrate needs a router, one of vllm-router, sglang-router, smg, toy, epd-proxy, llm-d-sidecar, production-stack; see xpyd migrate --help"},
		{"migrate toy --prefil-hosts a", "migrate: toy: it has no flag --prefil-hosts"},
		{"check --as toy --prefil-hosts a", "unknown flag: --prefil-hosts; see xpyd check --help"},
		{"check --as toy -- --prefil-hosts a", "--as: toy: it has no flag --prefil-hosts"},
		{"check --as toy a", `check takes no argument, got "a"; see xpyd check --help`},
		{"check -- --port 1", `check takes no argument, got "--port"; see xpyd check --help`},
		{"check --as toy --config x.yaml -- --port 1", "--as and --config: both say what the configuration is; give one of them"},
		{"serve --port 8000", "unknown flag: --port; the nearest is --listen, see xpyd serve --help"},
		{"serve --host 0.0.0.0", "unknown flag: --host; the nearest is --listen, see xpyd serve --help"},
		{"serve --prefill-url http://p:1", "unknown flag: --prefill-url; the nearest is --prefill, see xpyd serve --help"},
		{"serve --worker-urls http://w:1", "unknown flag: --worker-urls; the nearest is --decode, see xpyd serve --help"},
		{"serve --request-timeout-secs 9", "unknown flag: --request-timeout-secs; the nearest is --timeouts-request, see xpyd serve --help"},
	} {
		_, _, err := runRoot(t, strings.Fields(tc.args)...)
		var usage config.UsageError
		if !errors.As(err, &usage) || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", tc.args, err, tc.want)
		}
	}
}

// xpyd's own flags win over the other router's.
func TestOwnFlagsWinOverAnotherRouters(t *testing.T) {
	out, _, err := runRoot(t, "check", "--as", "llm-d-sidecar", "--listen", "127.0.0.1:8000", "--prefill", "http://p:1", "--", "--vllm-port=8300", "--secure-proxy=false")
	if want := "prefill: http://p:1 (prefix)\ndecode: http://localhost:8300 (least_request)\nok\n"; err != nil || out != want {
		t.Errorf("%v, got %q, want %q", err, out, want)
	}
}
