package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"xpyd/bench"
	"xpyd/bench/progress"
	printer "xpyd/bench/report"
	"xpyd/bench/result"
	"xpyd/cmd/config"
)

func newBenchServeCmd() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Send a load of completions and report latencies and throughput",
		Long: `serve sends a load of streamed completions to a server and prints the same block as vllm bench serve.
It also accepts the flags of vllm bench serve by their names there. TTFT ends with the first event that
carries a token. The role event of a chat carries none. Incomplete answers count as failed, by code.
` + "docs/benchmarking.md has the definitions." + formatHelp(),
		Example: `  xpyd bench serve --url http://127.0.0.1:8080 --input-len 1024 --output-len 128 --num-prompts 200 --rate 4
  xpyd bench serve --url http://127.0.0.1:8080 --concurrency 32 --duration 1m --goodput ttft:200 tpot:50 --out runs`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(cmd.Flags(), args)
			if err == nil {
				err = checkUse(o)
			}
			if err != nil {
				return config.UsageError{Err: err}
			}
			if err := checkFormat(f.format); err != nil {
				return err
			}
			return runBench(cmd.Context(), o, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd.Flags())
	addFormatFlag(cmd, &f.format, "vllm")
	return cmd
}

// runBench makes the prompts, sends the load, saves and prints. It also saves and prints a run that a
// signal ended.
func runBench(ctx context.Context, o bench.Options, f *benchFlags, out, note io.Writer) error {
	if f.out != "" {
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return fmt.Errorf("make the directory of results: %w", err)
		}
	}
	for _, line := range f.notes {
		fmt.Fprintln(note, "note: "+line)
	}
	fmt.Fprintln(note, "making prompts…")
	b, err := bench.Prepare(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprint(note, printer.Preface(b.Config()))
	meter := progress.New(note, !f.noBar && isTerminal(note), b.Requests())
	b.Watch(f.engines, meter.Say)
	run := b.Run(ctx, func(r *result.Record) { meter.Add(r.OK()) })
	meter.Close()
	saved := f.save(run, note)
	if err := printer.Print(out, f.format, []*result.Run{run}); err != nil {
		return errors.Join(saved, err)
	}
	for _, line := range printer.Notes(run) {
		fmt.Fprintln(note, "note: "+line)
	}
	return errors.Join(saved, run.Verdict())
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// save writes the run and vLLM's result file into the directory of results.
func (f *benchFlags) save(run *result.Run, note io.Writer) error {
	if f.out == "" {
		return nil
	}
	path := filepath.Join(f.out, printer.FileName(run))
	if err := run.Save(path + result.Suffix); err != nil {
		return err
	}
	file, mode := path+".json", os.O_TRUNC
	if f.resultFile != "" {
		file = filepath.Join(f.out, f.resultFile)
	}
	if f.append {
		mode = os.O_APPEND
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|mode, 0o644)
	if err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	if err := errors.Join(printer.PrintAs(out, "vllm-json", []*result.Run{run}, printer.Options{Detailed: f.detailed}), out.Close()); err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	fmt.Fprintf(note, "saved %s and %s\n", path+result.Suffix, file)
	return nil
}
