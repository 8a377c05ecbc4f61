package main

import (
	"time"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
	"xpyd/router"
	"xpyd/tools/soak"
)

func newSoakCmd() *cobra.Command {
	var (
		o    soak.Options
		xpyd string
	)
	cmd := &cobra.Command{
		Use:   "soak [flags] [-- flags of xpyd serve]",
		Args:  proxyFlags,
		Short: "Break engines and connections under load; fail if anything is lost or leaks",
		Long: "Break engines and connections under load, in every way and at random, reload the proxy and\n" +
			"hand its ports over meanwhile; then leave it in peace. Clients and engines check that each\n" +
			"request has one end, each answer each byte, each handle one use, and that nothing stays behind.\n" +
			"The proxy (xpyd serve) runs in a process of its own. Takes the duration and about 15 s, on a busy machine up to 40 s.\n" +
			"Exit code 1 if an invariant is broken; seed, fault log, proxy log and goroutines are kept then.",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			cfg, err := config.FromArgs(args)
			if err != nil {
				return err
			}
			if o.Serve, err = serveCommand(xpyd, args); err != nil {
				return err
			}
			o.Alone = cfg.Router.PD.Mode != router.PDAlways
			return runWith(cmd, &o, soak.Run)
		},
	}
	f := cmd.Flags()
	xpydFlag(f, &xpyd)
	f.DurationVar(&o.Duration, "duration", 3*time.Minute, "how long the load lasts: a fifth without faults, three with, a fifth without")
	f.BoolVar(&o.TLS, "tls", false, "clients, proxy and engines speak TLS with certificates on both sides, and certificates are replaced meanwhile")
	f.IntVar(&o.Streams, "streams", 300, "clients that hold a stream each; a sixth as many ask for short answers")
	f.IntVar(&o.Events, "events", 40, "tokens of a stream, 50 ms apart")
	f.Uint64Var(&o.Seed, "seed", 1, "of everything random; the schedule of goroutines is not")
	f.StringVar(&o.Artefacts, "artefacts", "bench-out/soak", "`directory` for what a failed run leaves behind")
	cmd.AddCommand(newReloadCmd())
	return cmd
}

// newReloadCmd runs the soak of reloads, with many backends, some of which change each time.
func newReloadCmd() *cobra.Command {
	o, xpyd := soak.ReloadOptions{Rest: 5 * time.Second}, ""
	cmd := &cobra.Command{
		Use:   "reload [flags] [-- flags of xpyd serve]",
		Args:  proxyFlags,
		Short: "Let backends come and go by reload; fail if one that left is asked, or stays",
		Long: "Replace a random part of the backends by reload (HUP) every 0.5 to 1 s, under load. Engines that\n" +
			"have left listen on for a while and tell what still comes. The proxy (xpyd serve) runs in a\n" +
			"process of its own. Takes the duration and a minute more, with a thousand backends.\n" +
			"Exit code 1 if a request reaches a backend after its removal, a client sees an error, a handle is\n" +
			"not given back, or anything of removed backends stays: goroutines, connections, memory, metrics.",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Serve, err = serveCommand(xpyd, args); err != nil {
				return err
			}
			if !cmd.Flags().Changed("part") {
				o.Part = max(o.Backends/25, 1)
			}
			return runWith(cmd, &o, soak.Reload)
		},
	}
	f := cmd.Flags()
	xpydFlag(f, &xpyd)
	f.IntVar(&o.Backends, "backends", 1000, "backends at any time, half of them prefill")
	f.DurationVar(&o.Duration, "duration", 5*time.Minute, "how long they come and go")
	f.IntVar(&o.Clients, "clients", 32, "clients at a time")
	f.IntVar(&o.Part, "part", 0, "most backends that one reload replaces; none: 4 % of them")
	f.Uint64Var(&o.Seed, "seed", 1, "of everything random; the schedule of goroutines is not")
	return cmd
}
