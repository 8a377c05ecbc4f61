package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// check is one thing that a person does with the page. Each begins where the one before it ended.
type check struct {
	name string
	run  func(*visit) error
}

// pauseWatched is how long a paused page must not move. Events come each second.
const pauseWatched = 3 * time.Second

// warmUp names the wait in which the load goes on.
const warmUp = "the load goes on for a while"

func checks() []check {
	return []check{
		{"the page asks for the token", asksForToken},
		{"the token opens it", opens},
		{warmUp, nil},
		{"it shows the load", showsLoad},
		{"it shows no prompt", showsNoPrompt},
		{"the keyboard reaches everything", byKeyboard},
		{"in light colours", inLight},
		{"in the dark", inDark},
		{"on a phone", onPhone},
		{"an operator drains an engine", drains},
		{"an operator changes a weight", weighs},
		{"an engine dies", engineDies},
		{"the engine comes back", engineReturns},
		{"the proxy ends", proxyEnds},
	}
}

// has is an expression that is true if the text of an element has the words.
func has(selector, words string) string {
	return fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q)`, selector, words)
}

func asksForToken(v *visit) error {
	if err := v.view(1280, 900, "light"); err != nil {
		return err
	}
	if err := v.do(chromedp.Navigate("http://" + v.site.proxy.AdminAddr + "/")); err != nil {
		return err
	}
	if err := v.await("asked", `document.querySelector('#ask').open`); err != nil {
		return err
	}
	if err := v.accessible(); err != nil {
		return err
	}
	if err := v.do(chromedp.SendKeys(chromedp.CSS("#token"), "wrong"+kb.Enter)); err != nil {
		return err
	}
	return v.await("told that it is the wrong one", has("#ask-why", "not the right one"))
}

func opens(v *visit) error {
	if err := v.do(chromedp.SendKeys(chromedp.CSS("#token"), token+kb.Enter)); err != nil {
		return err
	}
	if err := v.await("ready", has("#ready", "ready")); err != nil {
		return err
	}
	return v.await("closed", `!document.querySelector('#ask').open`)
}

// newest is an expression for the completion that is listed first.
const newest = `document.querySelector('#lives li').dataset.key`

func showsLoad(v *visit) error {
	for what, expression := range map[string]string{
		"two engines in each pool":   `document.querySelectorAll('#pool-prefill tbody tr').length == 2 && document.querySelectorAll('#pool-decode tbody tr').length == 2`,
		"up":                         `[...document.querySelectorAll('.cards .badge')].every(b => b.textContent == 'up')`,
		"three plots":                `document.querySelectorAll('.plot canvas').length == 3`,
		"transfers of all pairs":     `[...document.querySelectorAll('#pairs td')].filter(c => parseInt(c.textContent) > 0).length == 4`,
		"completions with both legs": `document.querySelectorAll('#lives li .lanes .stream').length > 10 && document.querySelectorAll('#lives li .lanes .prefill').length > 10`,
		"figures of the engines":     has("#pool-decode", "run,"),
		"TTFT in words":              has("#sum-ttft", "p50"),
		"paths":                      has("#paths", "by both legs"),
		"advice":                     has("#advice", "Load of prefill"),
	} {
		if err := v.await("showing "+what, expression); err != nil {
			return err
		}
	}
	first, err := ask[string](v.browser, newest)
	if err != nil {
		return err
	}
	return v.await("updated", fmt.Sprintf(`%s != %q`, newest, first))
}

func showsNoPrompt(v *visit) error {
	found, err := ask[bool](v.browser, `document.documentElement.innerHTML.includes('word word')`)
	if err == nil && found {
		err = errors.New("the page holds a prompt")
	}
	return err
}

// byKeyboard walks from the top of the page to the button that pauses it, and to the tables that scroll.
func byKeyboard(v *visit) error {
	if err := v.do(run(`document.activeElement.blur(); scrollTo(0, 0)`), chromedp.KeyEvent(kb.Tab)); err != nil {
		return err
	}
	if err := v.await("at the link that skips the head", `document.activeElement.className == 'skip'`); err != nil {
		return err
	}
	if err := v.do(chromedp.KeyEvent(kb.Tab)); err != nil {
		return err
	}
	if err := v.await("at the button", `document.activeElement.id == 'pause'`); err != nil {
		return err
	}
	if err := v.do(chromedp.KeyEvent(kb.Enter)); err != nil {
		return err
	}
	if err := v.await("paused", `document.querySelector('#pause').getAttribute('aria-pressed') == 'true'`); err != nil {
		return err
	}
	before, err := ask[string](v.browser, newest)
	if err != nil {
		return err
	}
	if err := rest(v.ctx, pauseWatched); err != nil {
		return err
	}
	after, err := ask[string](v.browser, newest)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("the page moved while it was paused, from completion %s to %s", before, after)
	}
	if err := v.do(chromedp.KeyEvent(kb.Enter)); err != nil {
		return err
	}
	return v.await("going on", fmt.Sprintf(`%s != %q`, newest, before))
}

func inLight(v *visit) error {
	if err := v.view(1280, 1400, "light"); err != nil {
		return err
	}
	if err := v.accessible(); err != nil {
		return err
	}
	return v.picture("light")
}

func inDark(v *visit) error {
	if err := v.view(1280, 700, "dark"); err != nil {
		return err
	}
	if err := v.await("dark", `getComputedStyle(document.body).backgroundColor == 'rgb(13, 17, 23)'`); err != nil {
		return err
	}
	if err := v.accessible(); err != nil {
		return err
	}
	if err := v.do(run(`document.querySelector('#h-paths').scrollIntoView()`)); err != nil {
		return err
	}
	return v.picture("dark")
}

func onPhone(v *visit) error {
	if err := v.view(360, 740, "light"); err != nil {
		return err
	}
	if err := v.await("no wider than the screen", `document.documentElement.scrollWidth <= 360`); err != nil {
		return err
	}
	if err := v.accessible(); err != nil {
		return err
	}
	if err := v.do(run(`document.querySelector('#h-prefill').scrollIntoView()`)); err != nil {
		return err
	}
	return v.picture("phone")
}

// firstDecode is the row of the decode engine that is listed first.
const firstDecode = "#pool-decode tbody tr:first-child"

func drains(v *visit) error {
	if err := v.view(1280, 900, "light"); err != nil {
		return err
	}
	if err := v.do(chromedp.Click(chromedp.CSS(firstDecode + " button"))); err != nil {
		return err
	}
	if err := v.await("asked", `document.querySelector('#sure').open`); err != nil {
		return err
	}
	if err := v.accessible(); err != nil {
		return err
	}
	if err := v.do(chromedp.Click(chromedp.CSS("#sure-yes"))); err != nil {
		return err
	}
	if err := v.await("told that it drains", has("#done", "drain")); err != nil {
		return err
	}
	if err := v.await("told who did it", has("#events", ", on the page")); err != nil {
		return err
	}
	if err := v.await("drained", has(firstDecode+" .badge", "drained")); err != nil {
		return err
	}
	if err := v.do(chromedp.Click(chromedp.CSS(firstDecode + " button"))); err != nil {
		return err
	}
	return v.await("up again", fmt.Sprintf(`document.querySelector(%q).textContent == 'up'`, firstDecode+" .badge"))
}

func weighs(v *visit) error {
	field := run(fmt.Sprintf(`f = document.querySelector(%q); f.focus(); f.select()`, firstDecode+" .weight"))
	if err := v.do(field, chromedp.KeyEvent("0"+kb.Enter)); err != nil {
		return err
	}
	if err := v.await("told that 0 is no weight", has("#done", "must be above 0")); err != nil {
		return err
	}
	if err := v.do(field, chromedp.KeyEvent("2"+kb.Enter)); err != nil {
		return err
	}
	return v.await("weighed", has(firstDecode+" th", "weight 2"))
}

// engineDies kills the decode engine that is listed first while the page is open.
func engineDies(v *visit) error {
	if err := v.view(1280, 900, "dark"); err != nil {
		return err
	}
	dead := v.site.engines[2]
	dead.Kill()
	if err := v.await("noticed", has("#notices", dead.URL()+" is down")); err != nil {
		return err
	}
	if err := v.await("marked", `[...document.querySelectorAll('#pool-decode .badge')].filter(b => b.textContent == 'down').length == 1`); err != nil {
		return err
	}
	if err := v.await("told why", has(firstDecode, "connection refused")); err != nil {
		return err
	}
	if err := v.await("degraded", has("#ready", "degraded")); err != nil {
		return err
	}
	if err := v.await("in the title and the icon", `document.title.startsWith('degraded') && document.querySelector('#icon').href.includes('warn')`); err != nil {
		return err
	}
	if err := v.await("among the events", has("#events", "down")); err != nil {
		return err
	}
	if err := v.do(chromedp.Click(chromedp.CSS("#tiles button"))); err != nil {
		return err
	}
	if err := v.await("showing what failed", has("#failed-about", "since the process began")); err != nil {
		return err
	}
	if err := v.do(run(`scrollTo(0, 0)`)); err != nil {
		return err
	}
	if err := v.accessible(); err != nil {
		return err
	}
	return v.picture("outage")
}

func engineReturns(v *visit) error {
	back := v.site.engines[2]
	if err := back.Restart(); err != nil {
		return err
	}
	return v.await("up again", `[...document.querySelectorAll('#pool-decode .badge')].every(b => b.textContent == 'up')`)
}

func proxyEnds(v *visit) error {
	if err := v.site.end(); err != nil {
		return fmt.Errorf("end the proxy: %w", err)
	}
	return v.await("told that there is no connection", has("#ready", "no connection"))
}
