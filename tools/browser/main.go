// Command browser looks at the status page in Chromium. It runs simulated engines and the proxy in this
// process, under load, and drives the page as a person would: the token, the keyboard, a phone, light and
// dark, an engine that dies, a proxy that ends. axe-core searches each view for what people with a
// disability would trip over. make browser calls it in the repository's root.
//
// The exit status is 0 if nothing is wrong, 1 if something is, and 2 for a wrong flag.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	chromium string        // the program
	axe      string        // axe.min.js
	pictures string        // the folder for screenshots
	warm     time.Duration // of load before the first look
	limit    time.Duration // of the whole run
}

func main() { os.Exit(browse()) }

func browse() int {
	var o options
	flag.StringVar(&o.chromium, "chromium", "chromium", "the browser")
	flag.StringVar(&o.axe, "axe", "dist/axe/node_modules/axe-core/axe.min.js", "axe-core")
	flag.StringVar(&o.pictures, "pictures", "dist/status", "folder for the screenshots; docs/img renews those of the documentation")
	flag.DurationVar(&o.warm, "warm", 15*time.Second, "load before the first look")
	flag.DurationVar(&o.limit, "limit", 8*time.Minute, "time for the whole run")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "browser: takes no argument, got %q\n", flag.Args())
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	if err := look(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		return 1
	}
	fmt.Println("nothing is wrong; screenshots are in", o.pictures)
	return 0
}

// look runs all checks, one after the other, over one site and one browser.
func look(ctx context.Context, o options) (err error) {
	axe, err := os.ReadFile(o.axe)
	if err != nil {
		return fmt.Errorf("axe-core: %w", err)
	}
	if err := os.MkdirAll(o.pictures, 0o755); err != nil {
		return fmt.Errorf("screenshots: %w", err)
	}
	s, err := openSite()
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	s.load(ctx)
	b, err := openBrowser(ctx, o.chromium)
	if err != nil {
		return err
	}
	defer b.close()
	v := visit{browser: b, site: s, axe: string(axe), pictures: o.pictures}
	for _, c := range checks() {
		fmt.Println(c.name)
		if c.name == warmUp {
			if err := rest(ctx, o.warm); err != nil {
				return err
			}
			continue
		}
		if err := c.run(&v); err != nil {
			_ = v.picture("failed")
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return b.complaints()
}

// rest waits, but not longer than ctx.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case <-time.After(d):
		return nil
	}
}
