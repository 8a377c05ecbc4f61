package cmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"xpyd/bench/plot"
	printer "xpyd/bench/report"
	"xpyd/bench/result"
	"xpyd/cmd/config"
)

// reportFlags are the flags of bench report.
type reportFlags struct {
	format, out string
	normalized  bool
	o           printer.Options
}

func newBenchReportCmd() *cobra.Command {
	f := &reportFlags{}
	cmd := &cobra.Command{
		Use:   "report PATH...",
		Short: "Print saved runs, and results of other tools beside them",
		Long: `report prints the runs that bench serve or bench sweep saved in each PATH, the oldest first. A PATH may also be
a file: a result of vllm bench serve or benchmark_serving.py, a lifecycle report of inference-perf, or a benchmark
report of llm-d (.yaml). With --out it writes the files of the format instead of the text: plots as PNG and SVG, and a
file for each run if the format has such files.` + formatHelp(),
		Example: `  xpyd bench report runs --format table
  xpyd bench report runs openai-infqps-Qwen3-8B-20260101-120000.json --format table
  xpyd bench report runs --format html --out page
  xpyd bench report runs --format ray --latency-mode chunk --out figures`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return config.UsageError{Err: errors.New("report takes directories and files of runs, got none")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return config.UsageError{Err: err}
			}
			runs, err := result.LoadAll(args)
			if err != nil {
				return config.UsageError{Err: err}
			}
			if f.out == "" {
				return printer.PrintAs(cmd.OutOrStdout(), f.format, runs, f.o)
			}
			files, err := printer.Files(f.format, runs, f.o)
			if err != nil {
				return err
			}
			return writeFiles(f.out, files, cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	return cmd
}

// oneDirectory requires exactly one argument.
func oneDirectory(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return config.UsageError{Err: fmt.Errorf("%s takes one directory, got %d", name, len(args))}
		}
		return nil
	}
}

// loadRuns reads the saved runs of a directory that the command line names.
func loadRuns(dir string) ([]*result.Run, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, config.UsageError{Err: fmt.Errorf("load the runs: %w; give the directory of --out", err)}
	}
	runs, err := result.LoadDir(dir)
	if err != nil {
		return nil, config.UsageError{Err: err}
	}
	return runs, nil
}

func (f *reportFlags) add(cmd *cobra.Command) {
	addFormatFlag(cmd, &f.format, "vllm")
	s := cmd.Flags()
	s.StringVar(&f.out, "out", "", "directory for the files of the format (default: print its text)")
	s.StringVar(&f.o.Ray.Mode, "latency-mode", plot.Token, "for ray and html: token (TPOT), first_token (TTFT), or chunk (the time to --chunk-size tokens)")
	s.IntVar(&f.o.Ray.Chunk, "chunk-size", plot.ChunkSize, "tokens of a chunk: its latency is TTFT + (size - 1) TPOT")
	s.StringVar(&f.o.Ray.Throughput, "throughput-metric", plot.OutputTokens, "for ray and html: output, input or total tokens, or requests")
	s.BoolVar(&f.o.Ray.Interactivity, "use-interactivity", false, "for ray and html: show tokens per second of one user, 1000/TPOT, instead of the latency")
	s.BoolVar(&f.normalized, "use-normalized", true, "for ray and html: show the throughput of a node of 8 GPUs, if the GPUs of all targets are known")
	_ = cmd.RegisterFlagCompletionFunc("throughput-metric", cobra.FixedCompletions(plot.Throughputs(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("latency-mode", cobra.FixedCompletions(plot.Modes(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

func (f *reportFlags) check() error {
	if !slices.Contains(plot.Modes(), f.o.Ray.Mode) {
		return fmt.Errorf("--latency-mode %q: want one of %v", f.o.Ray.Mode, plot.Modes())
	}
	if f.o.Ray.Chunk < 1 {
		return fmt.Errorf("--chunk-size %d: want at least 1", f.o.Ray.Chunk)
	}
	if !slices.Contains(plot.Throughputs(), f.o.Ray.Throughput) {
		return fmt.Errorf("--throughput-metric %q: want one of %v", f.o.Ray.Throughput, plot.Throughputs())
	}
	f.o.Ray.Raw = !f.normalized
	return checkFormat(f.format)
}

// writeFiles writes a report's files below dir and prints their names.
func writeFiles(dir string, files []printer.File, note io.Writer) error {
	for _, file := range files {
		path := filepath.Join(dir, file.Name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, file.Data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		fmt.Fprintln(note, "saved", path)
	}
	return nil
}

func addFormatFlag(cmd *cobra.Command, format *string, value string) {
	cmd.Flags().StringVar(format, "format", value, "how to print the result; the formats are listed above")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(printer.Formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

func formatHelp() string {
	text := "\n\nFormats:\n"
	for _, name := range printer.Formats() {
		text += fmt.Sprintf("  %-15s%s\n", name, printer.About(name))
	}
	return text
}

func checkFormat(format string) error {
	if !slices.Contains(printer.Formats(), format) {
		return config.UsageError{Err: fmt.Errorf("--format %q: want one of %v", format, printer.Formats())}
	}
	return nil
}
