package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"xpyd/bench"
	"xpyd/bench/client"
	"xpyd/bench/load"
	"xpyd/bench/result"
)

const (
	askPace   = time.Second      // between two checks whether a target is up
	askTime   = 5 * time.Second  // for one answer
	downTime  = 5 * time.Minute  // for a down command, also after a signal
	killDelay = 10 * time.Second // between TERM and KILL for a command that is broken off
	warmUps   = 8                // requests to a target that has just come up; they do not count
)

// ready starts the target of a cell and ends the one before it, if they have commands for that.
func (r *Runner) ready(ctx context.Context, c *Cell) error {
	t := c.Target
	if t.Up == "" || r.up == t {
		return nil
	}
	if err := r.down(ctx); err != nil {
		return err
	}
	if err := r.broken[t]; err != nil {
		return err
	}
	r.up = t // down must run even if up fails half way
	fmt.Fprintf(r.Note, "%s up: %s\n", t.Name, t.Up)
	err := r.shell(ctx, t, t.Up)
	if err == nil {
		err = r.waitUntilUp(ctx, c)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("target %s did not come up: %w", t.Name, err)
		r.broken[t] = err
		return errors.Join(err, r.down(ctx))
	}
	return err
}

// waitUntilUp asks for the models until the target has one, and then sends it some requests: the
// first ones after a start are slow, because they set up things such as connections between engines.
func (r *Runner) waitUntilUp(ctx context.Context, c *Cell) error {
	o := r.File.Options(c)
	asker := o.Client
	asker.Timeout = askTime
	cl, err := client.New(asker)
	if err != nil {
		return err
	}
	defer cl.Close()
	wait, cancel := context.WithTimeout(ctx, c.Target.Ready)
	defer cancel()
	for {
		if _, err = cl.FirstModel(wait); err == nil {
			break
		}
		select {
		case <-wait.Done():
			return fmt.Errorf("no model at %s within %s: %w", c.Target.URL, c.Target.Ready, err)
		case <-time.After(askPace):
		}
	}
	o.Prime, o.Warmups = false, 0
	o.Load = load.Plan{Rate: math.Inf(1), Burstiness: 1, Count: warmUps, Concurrency: 2}
	b, err := bench.Prepare(ctx, o)
	if err != nil {
		return err
	}
	return b.Run(ctx, func(*result.Record) {}).Verdict()
}

// down ends the running target, if it has a command for that.
func (r *Runner) down(ctx context.Context) error {
	t := r.up
	r.up = nil
	if t == nil || t.Down == "" {
		return nil
	}
	fmt.Fprintf(r.Note, "%s down: %s\n", t.Name, t.Down)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTime)
	defer cancel()
	if err := r.shell(ctx, t, t.Down); err != nil {
		return fmt.Errorf("target %s: down: %w", t.Name, err)
	}
	return nil
}

// shell runs a command of a target. Its output goes to a file, since processes that it leaves running
// keep the output open. It has a session of its own, so Ctrl-C does not reach what it started.
func (r *Runner) shell(ctx context.Context, t *Target, command string) (err error) {
	path := filepath.Join(r.Dir, notForFiles.ReplaceAllString(t.Name, "_")+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", t.Name, err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.File.dir, log, log
	cmd.Env = append(os.Environ(), "XPYD_TARGET="+t.Name, "XPYD_URL="+t.URL)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%q: %w; its output is in %s", command, err, path)
	}
	return nil
}
