package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/bench/advice"
	printer "xpyd/bench/report"
	"xpyd/bench/sweep"
	"xpyd/cmd/config"
)

// sweepFlags are the flags of bench sweep.
type sweepFlags struct {
	preset           string
	targets          []string
	workloads, loads []string
	also             bool
	repeats          int
	maxPrompts       int
	out, format      string
	dryRun, printing bool
	noBar            bool
	bench            benchFlags // shared with bench serve
}

func newBenchSweepCmd() *cobra.Command {
	f := &sweepFlags{}
	cmd := &cobra.Command{
		Use:   "sweep [FILE.yaml]",
		Short: "Measure several targets under several loads, and say which is best",
		Long: `sweep runs each cell of targets × workloads × loads × repeats, one after the other, and saves each
as bench serve --out does. The targets alternate. To continue an interrupted sweep, and to repeat the cells
that failed, run the same command again. At the end, sweep prints the runs, and which target is best at
which load.

Presets are published experiments. ` + "docs/benchmarking.md describes them, and --print shows their files." + formatHelp(),
		Example: `  xpyd bench sweep --preset mooncake --target collocated:2=http://10.0.0.1:8000 --target 1P1D:2=http://10.0.0.9:8080
  xpyd bench sweep --preset ray --print > my.yaml
  xpyd bench sweep my.yaml --dry-run`,
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 1) == (f.preset != "") || len(args) > 1 {
				return config.UsageError{Err: fmt.Errorf("sweep takes one file, or --preset; got %d files and preset %q", len(args), f.preset)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(f.format); err != nil {
				return err
			}
			return f.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd.Flags())
	addFormatFlag(cmd, &f.format, "table")
	_ = cmd.RegisterFlagCompletionFunc("preset", cobra.FixedCompletions(sweep.Presets(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

func (f *sweepFlags) add(s *pflag.FlagSet) {
	s.SortFlags = false
	s.StringVar(&f.preset, "preset", "", "a published experiment instead of a file: "+fmt.Sprint(sweep.Presets()))
	s.StringArrayVar(&f.targets, "target", nil, "NAME=URL or NAME:GPUS=URL, repeated: adds a target, or sets the URL of one in the file. Names such as 2P1D or p2xtp1-d1xtp4 imply its engines")
	s.StringVar(&f.bench.o.Client.URL, "url", "", "URL of a target; its address is its name")
	s.StringArrayVar(&f.bench.engineURLs, "engine", nil, "NAME=URL or NAME:GPUS=URL of an engine behind --url, repeated: as in bench serve")
	s.StringVar(&f.bench.o.Client.Model, "model", "", "model (default: the file's, or the first that each target lists)")
	s.StringVar(&f.bench.o.Client.API, "api", "", "completions or chat (default: the file's, or completions)")
	s.StringArrayVar(&f.bench.headers, "header", nil, "K=V header of each request, repeated")
	s.StringVar(&f.bench.keyFile, "key-file", "", "file with the bearer token in its first line")
	s.BoolVar(&f.bench.o.Client.Insecure, "insecure", false, "accept any certificate")
	s.StringArrayVar(&f.workloads, "workload", nil, "measure only this workload of the file, repeated")
	s.StringArrayVar(&f.loads, "load", nil, "measure only this load of the file, as --dry-run names it (rate2-n200), repeated; also one of those under also")
	s.BoolVar(&f.also, "also", false, "measure the loads under also too: those that a preset's document has no figures for")
	s.IntVar(&f.repeats, "repeats", 0, "how often to measure each cell (default: the file's)")
	s.IntVar(&f.maxPrompts, "max-prompts", 0, "most requests in a cell, for a trial of a sweep (default: no limit)")
	s.StringArrayVar(&f.bench.goodput, "goodput", nil, "limits in ms that a good request meets, as in ttft:200,tpot:50 (default: the file's)")
	s.StringVar(&f.out, "out", "", "directory of saved runs; sweep does not measure its finished cells again (default: runs-NAME)")
	s.BoolVar(&f.dryRun, "dry-run", false, "print the cells, and about how long they take")
	s.BoolVar(&f.printing, "print", false, "print the file of --preset")
	s.BoolVar(&f.noBar, "no-progress", false, "show no progress bar on a terminal")
}

func (f *sweepFlags) run(ctx context.Context, args []string, out, note io.Writer) error {
	if f.printing {
		return f.print(out)
	}
	file, err := f.file(args)
	if err != nil {
		return config.UsageError{Err: err}
	}
	if f.out == "" {
		f.out = "runs-" + file.Name
	}
	if file.About != "" {
		fmt.Fprintln(note, strings.TrimSpace(file.About))
	}
	r := &sweep.Runner{File: file, Dir: f.out, Note: note, Terminal: !f.noBar && isTerminal(note)}
	if f.dryRun {
		plan, err := r.Plan()
		fmt.Fprint(out, plan)
		return err
	}
	if took, err := r.Estimate(); err == nil && f.preset != "" {
		fmt.Fprintln(note, took)
	}
	outcome, err := r.Run(ctx)
	if outcome == nil {
		return err
	}
	fmt.Fprintf(note, "saved in %s\n%s", f.out, outcome.Summary())
	runs, broken := r.Runs()
	if err = errors.Join(err, broken); len(runs) > 0 {
		err = errors.Join(err, printer.Print(out, f.format, runs), printAdvice(out, runs, advice.Token(), advice.FirstToken()))
	}
	return errors.Join(err, outcome.Err())
}

func (f *sweepFlags) print(out io.Writer) error {
	if f.preset == "" {
		return config.UsageError{Err: errors.New("--print shows the file of a --preset")}
	}
	text, err := sweep.PresetText(f.preset)
	if err != nil {
		return config.UsageError{Err: err}
	}
	_, err = io.WriteString(out, text)
	return err
}

// file is the sweep that the arguments and flags ask for.
func (f *sweepFlags) file(args []string) (file *sweep.File, err error) {
	if f.preset != "" {
		file, err = sweep.Preset(f.preset)
	} else {
		file, err = sweep.Open(args[0])
	}
	if err != nil {
		return nil, err
	}
	if err := f.addTargets(file); err != nil {
		return nil, err
	}
	if f.preset != "" {
		file.LeaveTemplates()
	}
	if err := file.Only(f.workloads); err != nil {
		return nil, err
	}
	if err := file.OnlyLoads(f.loads); err != nil {
		return nil, err
	}
	if f.also {
		file.AddFurther()
	}
	if f.repeats < 0 || f.maxPrompts < 0 {
		return nil, errors.New("--repeats and --max-prompts cannot be negative")
	}
	file.Shorten(f.repeats, f.maxPrompts)
	if err := f.client(file); err != nil {
		return nil, err
	}
	return file, file.Validate()
}

func (f *sweepFlags) addTargets(file *sweep.File) error {
	for _, text := range f.targets {
		if err := file.AddTarget(text); err != nil {
			return fmt.Errorf("--target %w", err)
		}
	}
	address := f.bench.o.Client.URL
	switch {
	case address != "":
		return file.AddURL(address, f.bench.engineURLs)
	case len(f.bench.engineURLs) > 0:
		return errors.New("--engine is for --url: the targets of a file have engines of their own")
	}
	return nil
}

// client sets the flags that concern requests.
func (f *sweepFlags) client(file *sweep.File) error {
	b := &f.bench
	if err := b.readTarget(nil); err != nil {
		return err
	}
	file.Tool = "xpyd " + readBuildInfo().Version
	c := b.o.Client
	file.Header, file.Key, file.Insecure = c.Header, c.Key, c.Insecure
	if c.Model != "" {
		file.Model = c.Model
	}
	if c.API != "" {
		file.API = c.API
	}
	if len(b.goodput) > 0 {
		bounds, err := readBounds("goodput", b.goodput)
		if err != nil {
			return err
		}
		file.Goodput = bounds
	}
	return nil
}
