package monitoring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"xpyd/tools/process"
)

// Options say what is checked.
type Options struct {
	Xpyd    string        // the program
	Configs string        // the folder with grafana and prometheus
	Within  time.Duration // until each expression has series
}

// Validate reports what is wrong with o.
func (o *Options) Validate() error {
	if o.Within <= 0 {
		return fmt.Errorf("--within: %v must be above 0; try 1m", o.Within)
	}
	return nil
}

// Write writes the dashboards.
func Write(configs string) error {
	for _, d := range Dashboards() {
		text, err := d.JSON()
		if err == nil {
			err = os.WriteFile(filepath.Join(configs, "grafana", d.File), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", d.File, err)
		}
	}
	return nil
}

// Current fails unless the dashboards below configs are those of the code.
func Current(configs string) error {
	for _, d := range Dashboards() {
		path := filepath.Join(configs, "grafana", d.File)
		want, err := d.JSON()
		if err != nil {
			return fmt.Errorf("make %s: %w", d.File, err)
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
			return fmt.Errorf("%s is not that of the code: run make dashboards", path)
		}
	}
	return nil
}

// Run lets promtool check and test the rules. Then Prometheus scrapes xpyd demo under load, and each
// expression of a panel or a rule must have series. The conditions of alerts must hold while their faults
// last. At last the only prefill engine of a proxy dies and comes back.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	if err := Current(o.Configs); err != nil {
		return err
	}
	if err := promtool(ctx, o.Configs, out); err != nil {
		return err
	}
	executable := process.Find("prometheus", "")
	if executable == "" {
		return errors.New("there is no prometheus; install Debian's package of that name")
	}
	dir, err := os.MkdirTemp("", "xpyd-monitoring-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := deploy(ctx, dir, o.Xpyd)
	if err != nil {
		return err
	}
	defer d.stop()
	p, err := StartPrometheus(ctx, dir, executable, o.Configs, d.admins, d.engines())
	if err != nil {
		return err
	}
	defer p.Stop()
	loaded, unload := context.WithCancel(ctx)
	wait := load(loaded, d.proxies)
	defer func() { unload(); wait() }()
	return live(ctx, p, d, o, out)
}

// live is the part that asks Prometheus.
func live(ctx context.Context, p *Prometheus, d *deployment, o Options, out io.Writer) error {
	all, err := expressions(o.Configs)
	if err != nil {
		return err
	}
	rules, err := readRules(ruleFiles(o.Configs)[1])
	if err != nil {
		return err
	}
	if err := eachHasSeries(ctx, p, d, all, o.Within, out); err != nil {
		return err
	}
	c := conditions{p, rules, o.Within}
	if err := c.await(ctx, true, troubled...); err != nil {
		return err
	}
	if err := outage(ctx, d, c); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "the conditions of %s hold under their faults; those of %s come and go with a prefill engine\n", strings.Join(troubled, ", "), strings.Join(noPrefill, ", "))
	return nil
}

// promtool checks and tests the rules, and checks the configuration that compose uses.
func promtool(ctx context.Context, configs string, out io.Writer) error {
	dir := filepath.Join(configs, "prometheus")
	for _, args := range [][]string{{"check", "rules", "rules.yaml", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}, {"check", "config", "--syntax-only", "prometheus.yaml"}} {
		cmd := exec.CommandContext(ctx, "promtool", args...)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, text)
		}
		_, _ = fmt.Fprintf(out, "promtool %s: ok\n", strings.Join(args, " "))
	}
	return nil
}

// eachHasSeries asks all expressions until each has had series once. An engine fails until it is ejected,
// as some series begin with a failure.
func eachHasSeries(ctx context.Context, p *Prometheus, d *deployment, all []expression, within time.Duration, out io.Writer) error {
	if err := fault(ctx, d.decode[1], "status=500"); err != nil {
		return err
	}
	missing, healed, end := all, false, time.Now().Add(within)
	for len(missing) > 0 || !healed {
		var err error
		if missing, err = withoutSeries(ctx, p, missing); err != nil {
			return err
		}
		ejections, err := p.series(ctx, "xpyd_backend_ejections_total")
		if err == nil && ejections > 0 && !healed {
			healed, err = true, fault(ctx, d.decode[1], "")
		}
		if err != nil {
			return err
		}
		if time.Now().After(end) {
			return noSeries(missing, len(all))
		}
		if err := process.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	n, err := p.exemplars(ctx, "xpyd_ttft_seconds_bucket")
	if err == nil && n == 0 {
		err = errors.New("xpyd_ttft_seconds has no exemplars")
	}
	_, _ = fmt.Fprintf(out, "%d expressions of dashboards and rules have series; %d exemplars\n", len(all), n)
	return err
}

func withoutSeries(ctx context.Context, p *Prometheus, asked []expression) (missing []expression, err error) {
	for _, e := range asked {
		n, err := p.series(ctx, e.query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.where, err)
		}
		if n == 0 {
			missing = append(missing, e)
		}
	}
	return missing, nil
}

func noSeries(missing []expression, of int) error {
	var text strings.Builder
	for _, e := range missing {
		fmt.Fprintf(&text, "\n%s: %s", e.where, e.query)
	}
	return fmt.Errorf("%d of %d expressions have no series:%s", len(missing), of, text.String())
}

// troubled are the alerts whose conditions hold in the deployment: its certificate is of one day, requests
// fail, an engine is ejected, nobody gives handles back, a decode engine cannot pull.
var troubled = []string{"XpydCertificateEnds", "XpydCertificateEndsNow", "XpydErrorBudgetBurnFast", "XpydErrorBudgetBurnSlow", "XpydBackendEjected", "XpydKVStranded", "XpydNothingPulled"}

// noPrefill are those that hold without the only prefill engine of a proxy.
var noPrefill = []string{"XpydPrefillDown", "XpydDegraded"}

// outage ends that engine, and starts it again.
func outage(ctx context.Context, d *deployment, c conditions) error {
	if err := c.await(ctx, false, noPrefill...); err != nil {
		return err
	}
	d.mortal.Stop()
	if err := c.await(ctx, true, noPrefill...); err != nil {
		return err
	}
	if err := d.startMortal(ctx); err != nil {
		return err
	}
	return c.await(ctx, false, noPrefill...)
}

// conditions are those of the alerts, without the time for which they must hold.
type conditions struct {
	p      *Prometheus
	rules  []rule
	within time.Duration
}

// await waits until the conditions of all these alerts hold, or none does.
func (c conditions) await(ctx context.Context, hold bool, alerts ...string) error {
	end := time.Now().Add(c.within)
	for _, alert := range alerts {
		at := slices.IndexFunc(c.rules, func(r rule) bool { return r.Alert == alert })
		if at < 0 {
			return fmt.Errorf("there is no alert %s", alert)
		}
		for {
			n, err := c.p.series(ctx, c.rules[at].Expr)
			if err != nil {
				return err
			}
			if n > 0 == hold {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s: its condition holds for %d series, want some: %v", alert, n, hold)
			}
			if err := process.Sleep(ctx, 500*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}
