package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long the page may take to show what is expected of it. Machines may be busy.
const patience = 60 * time.Second

// browser is one Chromium with one tab.
type browser struct {
	ctx   context.Context
	close context.CancelFunc

	mu     sync.Mutex
	errors []string // that the page or the browser wrote to the console
}

func openBrowser(ctx context.Context, program string) (*browser, error) {
	b := &browser{}
	b.ctx, b.close = chromedp.NewContext(ctx, chromedp.WithListener(b.listen),
		chromedp.WithAllocatorOptions(chromedp.ExecPath(program), chromedp.NoSandbox)) // CI runs as root, where there is no sandbox
	// Not by do: the browser lives as long as the context of the first step.
	if err := chromedp.Do(b.ctx, call(log.Enable, cdp.Empty{})); err != nil {
		b.close()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return b, nil
}

// step is something that the browser does.
type step = chromedp.Action[chromedp.Void]

// call makes a step of a command of the browser's protocol.
func call[P any](command cdp.Command[P, cdp.Empty], params P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// listen notes errors. A refused policy is one of them. Answers of 401 and connections that break are
// not: the checks cause them.
func (b *browser) listen(event any) {
	what := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		what = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			what += ": " + x.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			what = e.Entry.Text
		}
	}
	if what == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = append(b.errors, what)
}

// complaints returns the errors of the whole visit as one.
func (b *browser) complaints() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errors) == 0 {
		return nil
	}
	return fmt.Errorf("the page wrote errors to the console: %s", strings.Join(b.errors, "; "))
}

// do takes the steps, each of which must end within patience.
func (b *browser) do(steps ...step) error {
	for _, s := range steps {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		err := chromedp.Do(ctx, s)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// run runs a statement in the page.
func run(statement string) step { return chromedp.Evaluate[chromedp.Void](statement) }

// ask returns the value of an expression of the page, which may be a promise.
func ask[T any](b *browser, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// await waits until an expression of the page is true.
func (b *browser) await(what, expression string) error {
	for deadline := time.Now().Add(patience); ; {
		ok, err := ask[bool](b, "Boolean("+expression+")")
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not %s after %v", what, patience)
		}
		if err := rest(b.ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// visit is a person in front of the page.
type visit struct {
	*browser
	site     *site
	axe      string // its source
	pictures string
}

// view sets the size and the colours of the screen.
func (v *visit) view(width, height int64, scheme string) error {
	return v.do(chromedp.EmulateViewport(width, height),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// picture saves a screenshot.
func (v *visit) picture(name string) error {
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return fmt.Errorf("screenshot %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(v.pictures, "status-"+name+".png"), png, 0o644)
}

// violation is a rule of axe-core that the page breaks.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

// accessible lets axe-core judge the view by WCAG 2.2, A and AA, and its own advice.
func (v *visit) accessible() error {
	if err := v.do(run(v.axe)); err != nil {
		return fmt.Errorf("load axe-core: %w", err)
	}
	text, err := ask[string](v.browser, `axe.run().then(r => JSON.stringify({broken: r.violations, passed: r.passes.length}))`)
	if err != nil {
		return fmt.Errorf("run axe-core: %w", err)
	}
	var r struct {
		Broken []violation
		Passed int
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("read axe-core's result: %w", err)
	}
	if r.Passed < 10 {
		return fmt.Errorf("axe-core found only %d rules that hold: it has not seen the page", r.Passed)
	}
	var found []string
	for _, b := range r.Broken {
		found = append(found, fmt.Sprintf("%s (%s): %s, at %.200s", b.ID, b.Impact, b.Help, b.Nodes[0].HTML))
	}
	if len(found) > 0 {
		return fmt.Errorf("axe-core: %s", strings.Join(found, "; "))
	}
	return nil
}
