package main

import (
	"time"

	"github.com/spf13/cobra"

	"xpyd/tools/sick"
)

func newSickCmd() *cobra.Command {
	o := sick.Options{Configs: "configs", Rate: 10, Warm: 20 * time.Second}
	cmd := &cobra.Command{
		Use:   "sick",
		Short: "Make engines sick under load; print after how many seconds each place names it, and whom it has harmed",
		Long: "Plant each fault in a deployment of its own, of three simulated prefill and three decode engines, under load:\n" +
			"engines that hang, are slow, only busy, or come and go, a wrong host, TLS where there is none, an expired\n" +
			"certificate, a full disk (as root). Then ask the page, the events, the metrics and, if it is installed, a\n" +
			"Prometheus with the alerts of configs, until each has named the fault.\n" +
			"Exit code 1 if a fault stays unnamed, if a goal is missed, or if an engine that is only busy is ejected.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Xpyd, err = findXpyd(o.Xpyd); err != nil {
				return err
			}
			return runWith(cmd, &o, sick.Run)
		},
	}
	f := cmd.Flags()
	xpydFlag(f, &o.Xpyd)
	f.StringVar(&o.Only, "run", "", "`regular expression` of the faults to plant")
	f.DurationVar(&o.Lasts, "lasts", 4*time.Minute, "how long a fault lasts that stays unnamed")
	f.DurationVar(&o.Busy, "busy", 4*time.Minute, "how long the busy loads last; before a release, 1h")
	f.IntVar(&o.AtOnce, "at-once", 4, "deployments that run at a time")
	f.StringVar(&o.Logs, "logs", "", "`folder` that keeps the logs")
	return cmd
}
