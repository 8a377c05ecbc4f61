package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/cmd/config"
	"xpyd/cmd/ctl"
	"xpyd/router"
)

func newCtlCmd() *cobra.Command {
	flags := &adminFlags{}
	cmd := &cobra.Command{
		Use:   "ctl",
		Short: "Operate a running xpyd: add, drain and remove engines, change their weights and roles",
		Long: `ctl changes a running xpyd over its admin port. Name a backend by its URL, or by host and port.
A change holds until the process ends, or longer if state_file is set.
docs/members.md explains the states.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return config.UsageError{Err: fmt.Errorf("ctl has no command %q; see xpyd ctl --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.add(cmd)
	cmd.AddCommand(newStatusCmd(flags), newCtlAdd(flags), newCtlDrain(flags), newCtlState(flags, "enable", "ready", "Send backends requests again"),
		newCtlState(flags, "disable", "disabled", "Drain backends, and ask them nothing except what health checks ask"),
		newCtlRemove(flags), newCtlWeight(flags), newCtlRole(flags), newCtlReload(flags), newCtlLogLevel(flags), newCtlLora(flags))
	for _, c := range cmd.Commands() {
		c.SetFlagErrorFunc(config.FlagError)
	}
	return cmd
}

// operate is the RunE of a command that needs from least to most arguments; usage names them.
func operate(flags *adminFlags, usage string, least, most int, run func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return config.UsageError{Err: fmt.Errorf("usage: %s %s", cmd.CommandPath(), usage)}
		}
		c, err := flags.client(cmd)
		if err != nil {
			return err
		}
		return usageOf(ctl.Explain(c, run(cmd.Context(), c, cmd.OutOrStdout(), args)))
	}
}

// usageOf makes a UsageError of what the admin port says is wrong with a value, which came from the command line.
func usageOf(err error) error {
	var refused *ctl.Refusal
	if errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
		return config.UsageError{Err: err}
	}
	return err
}

// manyArgs is more than anybody gives.
const manyArgs = 1 << 16

// anyArgs leaves the arguments to operate.
func anyArgs(*cobra.Command, []string) error { return nil }

func newCtlAdd(flags *adminFlags) *cobra.Command {
	f := &addFlags{}
	cmd := &cobra.Command{
		Use: "add URL --role ROLE", Short: "Add a backend to a pool", Args: anyArgs,
		Example: "  xpyd ctl add http://10.0.0.3:8200 --role decode --weight 2",
	}
	cmd.RunE = operate(flags, "URL --role prefill|decode|both|encode", 1, 1, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
		to, err := f.change(cmd.Flags())
		if err != nil {
			return config.UsageError{Err: err}
		}
		urls, err := eachRank(args)
		for _, to.URL = range urls {
			o, err := c.Add(ctx, to)
			if err := tell(out, o, err); err != nil {
				return err
			}
		}
		return err
	})
	f.add(cmd.Flags())
	return cmd
}

// addFlags are the flags of ctl add.
type addFlags struct {
	role, connector, state string
	weight, gpus           float64
	bootstrap              int
}

func (f *addFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.role, "role", "", "`pool`: prefill, decode, both (an engine without a role) or encode")
	s.Float64Var(&f.weight, "weight", 0, "`share` relative to the others of the pool (default 1, or gpus)")
	s.Float64Var(&f.gpus, "gpus", 0, "its `number` of GPUs")
	s.IntVar(&f.bootstrap, "bootstrap", 0, "`port` of its connector, if not the usual one (bootstrap=)")
	s.StringVar(&f.connector, "connector", "", "`name` of its connector (default: what the configuration says about this URL, or else the key connector)")
	s.StringVar(&f.state, "state", "", "`state` to begin in: ready, drain or disabled (default ready)")
}

// change is what the flags ask for. The admin port judges the values that it can be sent.
func (f *addFlags) change(s *pflag.FlagSet) (to ctl.Change, err error) {
	switch {
	case !slices.Contains([]string{"prefill", "decode", "both", "encode"}, f.role):
		return to, fmt.Errorf("--role: %q must be prefill, decode, both or encode", f.role)
	case !finite(f.weight) || !finite(f.gpus): // JSON has no such numbers
		return to, errors.New("--weight and --gpus must be numbers, such as 2 or 0.5")
	}
	return ctl.Change{
		Role: f.role, State: given(s, "state", &f.state), Weight: given(s, "weight", &f.weight), GPUs: given(s, "gpus", &f.gpus),
		Bootstrap: given(s, "bootstrap", &f.bootstrap), Connector: given(s, "connector", &f.connector),
	}, nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// given returns the value of a flag, or nil if the flag was left out.
func given[T any](s *pflag.FlagSet, name string, value *T) *T {
	if !s.Changed(name) {
		return nil
	}
	return value
}

// waiting are the flags of a command that may wait until requests have ended.
type waiting struct {
	on    bool
	limit time.Duration
}

func (w *waiting) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.on, "wait", false, "wait until its last stream and handle have ended")
	cmd.Flags().DurationVar(&w.limit, "timeout", 0, "longest wait; 0 means no limit. What you asked for goes on after it")
}

var errTimeout = errors.New("the time of --timeout is over")

// each waits for all of the URLs.
func (w *waiting) each(ctx context.Context, urls []string, wait func(context.Context, string) error) error {
	if !w.on {
		return nil
	}
	if w.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.limit, errTimeout)
		defer cancel()
	}
	for _, url := range urls {
		if err := wait(ctx, url); err != nil {
			return err
		}
	}
	return nil
}

func newCtlDrain(flags *adminFlags) *cobra.Command {
	var w waiting
	cmd := &cobra.Command{
		Use: "drain BACKEND...", Short: "Send backends no new requests, and let their running requests end", Args: anyArgs,
		Example: "  xpyd ctl drain 10.0.0.2:8200 --wait && ssh 10.0.0.2 systemctl restart vllm && xpyd ctl enable 10.0.0.2:8200",
	}
	cmd.RunE = operate(flags, "BACKEND...", 1, manyArgs, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
		urls, err := patchAll(ctx, c, out, args, ctl.Change{State: new("drain")})
		if err != nil {
			return err
		}
		if err := w.each(ctx, urls, c.Drained); err != nil || !w.on {
			return err
		}
		_, err = fmt.Fprintln(out, strings.Join(urls, ", ")+": drained")
		return err
	})
	w.add(cmd)
	return cmd
}

// eachRank spells out the ranks of names as host:8000@0..7.
func eachRank(names []string) (all []string, err error) {
	for _, name := range names {
		ranks, err := router.EachRank(name)
		if err != nil {
			return nil, config.UsageError{Err: fmt.Errorf("%q %w", router.ShowURL(name), err)}
		}
		all = append(all, ranks...)
	}
	return all, nil
}

// patchAll makes the same change to each of the backends, and returns their URLs.
func patchAll(ctx context.Context, c *ctl.Client, out io.Writer, ids []string, to ctl.Change) (urls []string, err error) {
	if ids, err = eachRank(ids); err != nil {
		return nil, err
	}
	for _, id := range ids {
		o, err := c.Patch(ctx, id, to)
		if err := tell(out, o, err); err != nil {
			return nil, err
		}
		urls = append(urls, o.URL)
	}
	return urls, nil
}

func newCtlState(flags *adminFlags, name, state, about string) *cobra.Command {
	return &cobra.Command{
		Use: name + " BACKEND...", Short: about, Args: anyArgs,
		RunE: operate(flags, "BACKEND...", 1, manyArgs, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
			_, err := patchAll(ctx, c, out, args, ctl.Change{State: &state})
			return err
		}),
	}
}

func newCtlRemove(flags *adminFlags) *cobra.Command {
	var w waiting
	var force bool
	cmd := &cobra.Command{Use: "remove BACKEND...", Short: "Remove backends once their requests have ended", Args: anyArgs}
	cmd.RunE = operate(flags, "BACKEND...", 1, manyArgs, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
		ids, err := eachRank(args)
		if err != nil {
			return err
		}
		var urls []string
		for _, id := range ids {
			o, err := c.Remove(ctx, id, force)
			if err := tell(out, o, err); err != nil {
				return err
			}
			urls = append(urls, o.URL)
		}
		return w.each(ctx, urls, c.Gone)
	})
	w.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "move requests that still wait for its answer to other backends at once")
	return cmd
}

func newCtlWeight(flags *adminFlags) *cobra.Command {
	return &cobra.Command{
		Use: "weight BACKEND NUMBER", Short: "Change a backend's share relative to the others of its pool", Args: anyArgs,
		RunE: operate(flags, "BACKEND NUMBER", 2, 2, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
			weight, err := strconv.ParseFloat(args[1], 64)
			if err != nil || !(weight > 0) || !finite(weight) {
				return config.UsageError{Err: fmt.Errorf("weight: %q must be a number above 0, such as 2 or 0.5", args[1])}
			}
			_, err = patchAll(ctx, c, out, args[:1], ctl.Change{Weight: &weight})
			return err
		}),
	}
}

func newCtlRole(flags *adminFlags) *cobra.Command {
	var w waiting
	cmd := &cobra.Command{Use: "role BACKEND ROLE", Short: "Give a backend that runs with kv_both one role, or both", Args: anyArgs}
	cmd.RunE = operate(flags, "BACKEND prefill|decode|both", 2, 2, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
		if !slices.Contains([]string{"prefill", "decode", "both"}, args[1]) {
			return config.UsageError{Err: fmt.Errorf("role: %q must be prefill, decode or both", args[1])}
		}
		urls, err := patchAll(ctx, c, out, args[:1], ctl.Change{Role: args[1]})
		if err != nil {
			return err
		}
		return w.each(ctx, urls, c.Gone)
	})
	w.add(cmd)
	return cmd
}

func newCtlLora(flags *adminFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "lora", Short: "Load or unload a LoRA adapter on all engines of a model",
		Long: `lora has all engines of a model load an adapter or unload it, of all pools.
The engines need --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True. One that restarts has only those of its own
command line again.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return config.UsageError{Err: fmt.Errorf("ctl lora has no command %q; see xpyd ctl lora --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	model := ""
	set := func(ctx context.Context, c *ctl.Client, out io.Writer, name, path string) error {
		done, err := c.Adapter(ctx, name, path, model)
		if err != nil {
			return err
		}
		failed, what := 0, map[bool]string{true: "loaded", false: "unloaded"}[path != ""]
		for _, d := range done {
			line := d.URL + ": " + name + " is " + what
			if d.Error != "" {
				failed++
				line = d.URL + ": " + d.Error
			}
			if _, err := fmt.Fprintln(out, spellOut(line)); err != nil {
				return err
			}
		}
		if failed > 0 {
			return fmt.Errorf("%s is not %s on %d of %d engines", name, what, failed, len(done))
		}
		return nil
	}
	load := &cobra.Command{
		Use: "load NAME PATH", Short: "Load an adapter", Args: anyArgs, Example: "  xpyd ctl lora load sql /adapters/sql",
		RunE: operate(flags, "NAME PATH", 2, 2, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
			return set(ctx, c, out, args[0], args[1])
		}),
	}
	unload := &cobra.Command{
		Use: "unload NAME", Short: "Unload an adapter", Args: anyArgs,
		RunE: operate(flags, "NAME", 1, 1, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
			return set(ctx, c, out, args[0], "")
		}),
	}
	for _, sub := range []*cobra.Command{load, unload} {
		sub.Flags().StringVar(&model, "model", "", "the adapter's `model`, if the engines serve several")
		sub.SetFlagErrorFunc(config.FlagError)
		cmd.AddCommand(sub)
	}
	return cmd
}

func newCtlReload(flags *adminFlags) *cobra.Command {
	return &cobra.Command{
		Use: "reload", Short: "Reread the configuration, as HUP does, and say whether it is in force", Args: anyArgs,
		RunE: operate(flags, "", 0, 0, func(ctx context.Context, c *ctl.Client, out io.Writer, _ []string) error {
			if err := c.Reload(ctx); err != nil {
				return err
			}
			_, err := fmt.Fprintln(out, "reloaded")
			return err
		}),
	}
}

func newCtlLogLevel(flags *adminFlags) *cobra.Command {
	return &cobra.Command{
		Use: "log-level [LEVEL]", Short: "Print or change the log level: debug, info, warn, error", Args: anyArgs,
		RunE: operate(flags, "[debug|info|warn|error]", 0, 1, func(ctx context.Context, c *ctl.Client, out io.Writer, args []string) error {
			if len(args) > 0 {
				if err := c.SetLevel(ctx, args[0]); err != nil {
					return err
				}
			}
			level, err := c.Level(ctx)
			if err == nil {
				_, err = fmt.Fprintln(out, level)
			}
			return err
		}),
	}
}

// tell prints what has become of a backend.
func tell(out io.Writer, o ctl.Outcome, err error) error {
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, o.Line())
	for _, line := range []string{o.Warning, o.Note} {
		if line != "" {
			say("xpyd: " + line)
		}
	}
	return err
}
