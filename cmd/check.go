package cmd

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/cmd/daemon"
	"xpyd/router"
)

func newCheckCmd() *cobra.Command {
	var probe, bandwidth, asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration and, with --probe, the engines",
		Long: `check reads the configuration and state_file as serve would, and prints the pools. It warns of settings that
have no effect because of other settings.

With --probe it also asks each backend for its health, models and version, sends a prompt
for one token through every pair of a prefill and a decode engine, and has each
encode engine encode an image. The prompts and the image are its own. It names what does not fit.
With --bandwidth it does the same, and measures KV transfers of several lengths.

Exit status: 0 if everything fits, 1 if not, 2 if the configuration is wrong.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			load, err := loader(cmd, args, os.Environ(), false)
			if err != nil {
				return err
			}
			c, err := load(cmd.Context())
			if err != nil {
				return err
			}
			warnings, err := warningsOf(c)
			if err != nil {
				return err
			}
			if asJSON {
				return checkJSON(cmd.Context(), cmd.OutOrStdout(), c, warnings, probe || bandwidth, bandwidth)
			}
			printConfig(cmd.OutOrStdout(), c, warnings)
			if probe || bandwidth {
				r, err := runProbe(cmd.Context(), c, bandwidth)
				if err != nil {
					return err
				}
				return printReport(cmd.OutOrStdout(), r)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "ok")
			return nil
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	config.AddFlags(cmd.Flags())
	config.CompleteValues(cmd)
	addAs(cmd)
	cmd.Flags().BoolVar(&probe, "probe", false, "ask the engines, and send a prompt for one token through each pair")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with all of this")
	cmd.Flags().BoolVar(&bandwidth, "bandwidth", false, "probe, and measure KV transfers of several prompt lengths between each pair")
	return cmd
}

// warningsOf lists what is questionable about the configuration. It fails if a start would refuse the state file.
func warningsOf(c config.Config) ([]string, error) {
	doubt, err := daemon.CheckState(c)
	if err != nil {
		return nil, err
	}
	warnings := config.Warnings(c)
	if doubt != "" {
		warnings = append(warnings, doubt)
	}
	return warnings, nil
}

func printConfig(w io.Writer, c config.Config, warnings []string) {
	printPools(w, c)
	for _, line := range warnings {
		fmt.Fprintln(w, "warning:", line)
	}
}

func printPools(w io.Writer, c config.Config) {
	r := c.Router
	if len(r.Engines) > 0 {
		fmt.Fprintf(w, "engines: %s (%s to prefill, %s to decode)\n", strings.Join(router.Texts(r.Engines), " "), r.PrefillPolicy, r.ChosenDecodePolicy())
	}
	switch {
	case len(r.Prefill) > 0:
		fmt.Fprintf(w, "prefill: %s (%s)\n", strings.Join(router.Texts(r.Prefill), " "), r.PrefillPolicy)
	case len(r.Engines) == 0:
		fmt.Fprintln(w, "prefill: none, every request goes to the decode pool alone")
	}
	if len(r.Decode) > 0 {
		fmt.Fprintf(w, "decode: %s (%s)\n", strings.Join(router.Texts(r.Decode), " "), r.ChosenDecodePolicy())
	}
	if len(r.Encode) > 0 {
		fmt.Fprintf(w, "encode: %s\n", strings.Join(router.Texts(r.Encode), " "))
	}
}

// printReport writes both tables and then what does not fit, with one fault on a line.
func printReport(w io.Writer, r *report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nROLE\tBACKEND\tHEALTH\tVERSION\tMODELS")
	for _, e := range r.engines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", e.role, e.url, orDash(e.health), orDash(e.version), orDash(strings.Join(e.models, ",")))
	}
	if len(r.rounds) > 0 {
		fmt.Fprintln(t, "\nPREFILL\tDECODE\tROUND\tPREFILL MS\tDECODE MS")
	}
	for _, p := range r.rounds {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\n", p.prefill, p.decode, p.result, p.prefillTime.Milliseconds(), p.decodeTime.Milliseconds())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.transfers) > 0 {
		if err := printTransfers(w, r.transfers); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, n := range r.notes {
		fmt.Fprintln(w, "note:", n)
	}
	for _, f := range r.faults {
		fmt.Fprintln(w, "does not fit:", f)
	}
	if len(r.faults) == 0 {
		fmt.Fprintln(w, "ok")
	}
	return r.verdict()
}

// verdict is an error if something does not fit.
func (r *report) verdict() error {
	switch len(r.faults) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("check: 1 thing does not fit")
	}
	return fmt.Errorf("check: %d things do not fit", len(r.faults))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
