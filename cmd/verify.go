package cmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"xpyd/bench/verify"
	"xpyd/cmd/config"
	"xpyd/internal/files"
	"xpyd/router"
)

// verifyFlags holds the flags of verify.
type verifyFlags struct {
	o                                      verify.Options
	keyFile, engineKeyFile, adminTokenFile string
	logs                                   []string
	json                                   bool
}

func newVerifyCmd() *cobra.Command {
	f := &verifyFlags{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that a running deployment disaggregates and answers correctly",
		Long: `verify sends about sixty small requests through xpyd and to a decode engine alone, compares the
answers, and reads the engines' counters. It makes up its own prompts. It prints one row for
each check: ok, FAIL, or unknown if it cannot tell because of other traffic or a missing metric. The
row "lease" leaves a few blocks pinned on each prefill engine until their lease ends.

Exit status: 0 if every row is ok, 1 if one is not, 2 for a wrong flag.
docs/verify.md explains the rows.`,
		Example: `  xpyd verify --url http://127.0.0.1:8080 --prefill http://10.0.0.1:8100 --decode http://10.0.0.2:8200
  xpyd verify --url http://127.0.0.1:8080 --prefill http://p:8100 --decode http://d:8200 --admin http://127.0.0.1:8081 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(f.logs) > 0 {
				return f.readLogs(cmd.OutOrStdout())
			}
			if err := f.read(); err != nil {
				return config.UsageError{Err: err}
			}
			return runVerify(cmd.Context(), f, cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	return cmd
}

func (f *verifyFlags) add(cmd *cobra.Command) {
	s, o := cmd.Flags(), &f.o
	s.SortFlags = false
	s.StringVar(&o.URL, "url", "http://127.0.0.1:8080", "base URL of xpyd, without /v1")
	s.StringSliceVar(&o.Prefill, "prefill", nil, "base URLs of the prefill engines, repeated or separated by commas")
	s.StringSliceVar(&o.Decode, "decode", nil, "base URLs of the decode engines")
	s.StringSliceVar(&o.Encode, "encode", nil, "base URLs of the encode engines, for the row encode")
	s.StringVar(&o.Admin, "admin", "", "base URL of xpyd's admin port, for the row handles")
	s.StringVar(&o.Connector, "connector", "nixl", "connector of the engines: the row engines says whether xpyd ran with their release")
	s.StringVar(&o.Model, "model", "", "model (default: the first that all engines list)")
	s.StringVar(&f.keyFile, "key-file", "", "file whose first line is the bearer token for xpyd")
	s.StringVar(&f.engineKeyFile, "backend-api-key-file", "", "file whose first line is the bearer token for the engines")
	s.StringVar(&f.adminTokenFile, "admin-token-file", "", "file whose first line is the bearer token for the admin port")
	s.BoolVar(&o.Insecure, "insecure", false, "accept any certificate")
	s.DurationVar(&o.Lease, "kv-lease", 30*time.Second, "kv.lease of xpyd, to compare with the lease of the engines")
	s.Float64Var(&o.GBps, "transfer-gbps", 0, "kv.transfer_gbps of xpyd, for the row transport: the least speed of KV transfers in GB/s")
	s.DurationVar(&o.Settle, "settle", 10*time.Second, "how soon engines must be free again after a client leaves")
	s.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "longest time for one request")
	s.StringSliceVar(&o.Skip, "skip", nil, "rows to leave out: "+strings.Join(verify.Names(), ", "))
	s.StringSliceVar(&f.logs, "logs", nil, "logs of engines that run with VLLM_LOGGING_LEVEL=DEBUG, repeated or separated by commas: asks nobody, and says whether each prefill in them was handed to a decode engine (NixlConnector)")
	s.BoolVar(&f.json, "json", false, "print the rows as one JSON object")
}

// read puts the flags into the options.
func (f *verifyFlags) read() (err error) {
	o := &f.o
	o.URL = strings.TrimSuffix(strings.TrimSuffix(o.URL, "/"), "/v1")
	o.Admin = strings.TrimSuffix(o.Admin, "/")
	for _, pool := range []struct {
		flag string
		urls *[]string
	}{{"--encode", &o.Encode}, {"--prefill", &o.Prefill}, {"--decode", &o.Decode}} {
		if *pool.urls, err = wholeEngines(*pool.urls); err != nil {
			return fmt.Errorf("%s: %w", pool.flag, err)
		}
	}
	if o.Key, err = firstLine("--key-file", f.keyFile); err != nil {
		return err
	}
	if o.EngineKey, err = firstLine("--backend-api-key-file", f.engineKeyFile); err != nil {
		return err
	}
	if o.AdminToken, err = adminToken(f.adminTokenFile); err != nil {
		return err
	}
	return o.Validate()
}

// wholeEngines returns the base URLs of the engines in a pool, each once. Its entries are as those of xpyd: a
// weight may follow the URL, and ranks may stand at its end. Case and port are as xpyd has them.
func wholeEngines(pool []string) (bases []string, err error) {
	for i, entry := range pool {
		url, _, _ := strings.Cut(strings.TrimSpace(entry), " ")
		ranks, err := router.EachRank(url)
		if err != nil {
			return nil, fmt.Errorf("entry %d %w", i+1, err)
		}
		base, _ := router.SplitRank(ranks[0])
		if plain, err := router.BaseURL(base); err == nil { // as xpyd names it; what xpyd would not take stays as it is
			base = plain
		}
		if base = strings.TrimSuffix(base, "/"); !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	return bases, nil
}

// firstLine is the key in the first line of a file, or "" without a file.
func firstLine(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := files.NewReader(false).Bytes(file)
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", flag, file, err)
	}
	key, rest, _ := strings.Cut(string(b), "\n")
	for strings.HasPrefix(key, "#") {
		key, rest, _ = strings.Cut(rest, "\n")
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", fmt.Errorf("%s %s: the first line is blank", flag, file)
	}
	return key, nil
}

// adminToken returns the first token of a file, which may be that of serve, with names.
func adminToken(file string) (string, error) {
	line, err := firstLine("--admin-token-file", file)
	if token := config.TokenOf(line); token != "" {
		line = token
	}
	return line, err
}

// readLogs prints the row of logs alone.
func (f *verifyFlags) readLogs(out io.Writer) error {
	row, err := verify.Logs(f.logs)
	if err != nil {
		return config.UsageError{Err: fmt.Errorf("--logs: %w", err)}
	}
	verdict := verify.Verdict([]verify.Row{row})
	if f.json {
		if err := (verify.Report{OK: verdict == nil, Rows: []verify.Row{row}}).Print(out); err != nil {
			return err
		}
		return verdict
	}
	verify.PrintRow(out, row)
	return verdict
}

func runVerify(ctx context.Context, f *verifyFlags, out io.Writer) error {
	if !f.json {
		f.o.Done = func(row verify.Row) { verify.PrintRow(out, row) }
	}
	rows, err := verify.Run(ctx, f.o)
	if err != nil {
		return err
	}
	verdict := verify.Verdict(rows)
	if f.json {
		if err := (verify.Report{URL: f.o.URL, OK: verdict == nil, Rows: rows}).Print(out); err != nil {
			return err
		}
	}
	return verdict
}
