package main

import (
	"time"

	"github.com/spf13/cobra"

	"xpyd/tools/monitoring"
)

func newMonitoringCmd() *cobra.Command {
	o := monitoring.Options{Configs: "configs"}
	cmd := &cobra.Command{
		Use:   "monitoring",
		Short: "Run every expression of the dashboards and rules in a Prometheus that scrapes xpyd demo",
		Long: "Check and test the rules by promtool. Then start xpyd demo, a second proxy over its engines, load, and\n" +
			"a Prometheus that scrapes them. Each expression of a panel or a rule must have series. At last a\n" +
			"prefill engine dies and comes back, and the alerts for that must see both.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Xpyd, err = findXpyd(o.Xpyd); err != nil {
				return err
			}
			return runWith(cmd, &o, monitoring.Run)
		},
	}
	xpydFlag(cmd.Flags(), &o.Xpyd)
	cmd.Flags().DurationVar(&o.Within, "within", 2*time.Minute, "how long an expression may take until it has series")
	return cmd
}

func newDashboardsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "dashboards",
		Short: "Write the dashboards of configs/grafana from their tables in tools/monitoring",
		RunE:  func(*cobra.Command, []string) error { return monitoring.Write("configs") },
	}
}
