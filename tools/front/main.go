// Command front tries the configurations of docs/guides/behind-a-proxy.md: it starts each proxy of that
// page in front of xpyd and simulated engines, and sends completions through it. It runs in the
// repository's root. The exit status is 1 if a check fails, and 3 if a proxy is not installed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"xpyd/tools/process"
)

const page = "docs/guides/behind-a-proxy.md"

// errMissing is returned where a proxy is not installed.
var errMissing = errors.New("not installed here")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Stdout)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "front:", err)
	if errors.Is(err, errMissing) {
		os.Exit(3)
	}
	os.Exit(1)
}

// run prints a row for each proxy. Its error joins all that went wrong.
func run(ctx context.Context, out io.Writer) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "front-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r, err := startRig()
	if err != nil {
		return err
	}
	defer r.close()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "FRONT")
	for _, c := range checks() {
		fmt.Fprint(table, "\t", c.name)
	}
	fmt.Fprintln(table)
	all := try(ctx, table, r, "none", r.addr)
	for _, f := range fronts() {
		all = errors.Join(all, tryFront(ctx, table, r, f, string(text), dir))
	}
	return errors.Join(all, table.Flush())
}

func tryFront(ctx context.Context, out io.Writer, r *rig, f front, text, dir string) error {
	program := process.Find(f.name, "")
	if program == "" {
		fmt.Fprintf(out, "%s\t%v\n", f.name, errMissing)
		return fmt.Errorf("%s: %w (apt-get install %s)", f.name, errMissing, f.debian)
	}
	addr, p, err := f.start(ctx, program, text, r.addr, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	defer p.Stop()
	return try(ctx, out, r, f.name+" "+f.version(ctx, program), addr)
}

// try runs all checks through addr.
func try(ctx context.Context, out io.Writer, r *rig, name, addr string) (all error) {
	fmt.Fprint(out, name)
	for _, c := range checks() {
		err := r.check(ctx, c, addr)
		said := "ok"
		if err != nil {
			said = "FAIL"
			all = errors.Join(all, fmt.Errorf("%s, %s: %w", name, c.name, err))
		}
		fmt.Fprint(out, "\t", said)
	}
	fmt.Fprintln(out)
	return all
}

// patience bounds a check. All that it waits for takes far less.
const patience = 20 * time.Second
