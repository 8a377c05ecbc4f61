package cmd

import (
	"bytes"
	"strings"
	"testing"
)

// verify --logs asks no engine, prints its row, and fails as the other rows do.
func TestVerifyLogs(t *testing.T) {
	const prefill, decode = "../bench/verify/testdata/prefill-0.32.0.log", "../bench/verify/testdata/decode-0.32.0.log"
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := newRootCmd()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"verify"}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := run("--logs", prefill+","+decode); err != nil || !strings.HasPrefix(out, "logs ") || !strings.Contains(out, " ok ") {
		t.Errorf("%v %q", err, out)
	}
	if out, err := run("--logs", prefill, "--json"); err == nil || !strings.Contains(out, `"state": "FAIL"`) {
		t.Errorf("%v %q", err, out)
	}
	_, err := run("--logs", "/nope.log")
	checkUsage(t, err, "--logs: read the log of an engine: open /nope.log: no such file or directory")
}

// Transfers that are slower than the link that they should take fail their row, and those that are fast enough pass it.
func TestVerifyTransport(t *testing.T) {
	t.Parallel()
	x := deploy(t, nil)
	skip := "--skip=lease,client leaves,rejected,handles"
	for gbps, want := range map[string]map[string]string{"1000": {"transport": " GB/s in transfers of "}, "0.000001": nil} {
		not, _ := x.rows(t, skip, "--transfer-gbps", gbps)
		checkFailed(t, not, want)
	}
}
