package cmd

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
)

func TestDemoOnce(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, tc := range []struct {
		name, listen string
		out, err     string
	}{
		{"any port", "", "proxy     http://127.0.0.1:", ""},
		{"given", "127.0.0.2:0", "proxy     http://127.0.0.2:", ""},
		{"taken", taken.Addr().String(), "", taken.Addr().String() + " is in use"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var out bytes.Buffer
			cmd := newDemoCmd()
			args := []string{"--once"}
			if tc.listen != "" {
				args = append(args, "--listen", tc.listen)
			}
			cmd.SetArgs(args)
			cmd.SetOut(&out)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(ctx)
			if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%v, want %q", err, tc.err)
			}
			if !strings.Contains(out.String(), tc.out) || (tc.err == "" && !strings.Contains(out.String(), "path disaggregated")) {
				t.Errorf("said %q", out.String())
			}
		})
	}
}

func TestDemoRefusesWrongAddress(t *testing.T) {
	cmd := newDemoCmd()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--once", "--listen", "8080"})
	cmd.SetOut(io.Discard)
	checkUsage(t, cmd.ExecuteContext(t.Context()), `--listen: "8080" must be host:port; try 127.0.0.1:8080`)
}
