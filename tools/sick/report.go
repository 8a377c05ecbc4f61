package sick

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// report prints the table, and fails if something is not as it should be.
func report(out io.Writer, all []*result, o Options) error {
	fmt.Fprintf(out, "%g requests a second; seconds from the fault until it is named\n\n", o.Rate)
	fmt.Fprintln(out, "| fault | page | events | metric | alert | requests | harmed | longest first token |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	var wrong []string
	for _, r := range all {
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %d | %d | %.1f s |\n", r.name, r.seen(r.page), r.seen(r.event), r.seen(r.metric), r.seen(r.alert),
			r.requests, r.harmed, r.worst.Seconds())
		for _, w := range r.faults() {
			wrong = append(wrong, r.name+": "+w)
		}
	}
	fmt.Fprintln(out)
	for _, r := range all {
		if r.stall > time.Second {
			fmt.Fprintf(out, "%s: this machine stood still for %.1f s, by which a request may have waited for longer\n", r.name, r.stall.Seconds())
		}
		if r.what != "" {
			fmt.Fprintf(out, "%s: %s\n", r.name, r.what)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d goals are missed:\n%s", len(wrong), strings.Join(wrong, "\n"))
	}
	fmt.Fprintln(out, "all goals are met")
	return nil
}

func (r *result) seen(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// faults lists what is not as it should be.
func (r *result) faults() (wrong []string) {
	if r.err != nil {
		return []string{r.err.Error()}
	}
	if r.harms >= 0 && r.harmed > r.harms {
		wrong = append(wrong, fmt.Sprintf("%d requests are harmed, want at most %d; first: %v", r.harmed, r.harms, r.firstHarm))
	}
	if r.busy {
		return append(wrong, r.wrong...)
	}
	for _, p := range []struct {
		place string
		at    time.Duration
		goal  bool
	}{{"the page", r.page, true}, {"xpyd events", r.event, true}, {r.ailment.metric, r.metric, true}, {r.ailment.alert, r.alert, false}} {
		switch {
		case p.at == 0 && !(r.noPrometheus && !p.goal):
			wrong = append(wrong, p.place+" does not name it")
			if r.unasked != nil {
				wrong = append(wrong, r.unasked.Error())
			}
		case p.goal && r.within > 0 && p.at > r.within:
			wrong = append(wrong, fmt.Sprintf("%s names it after %.1f s, want %v", p.place, p.at.Seconds(), r.within))
		}
	}
	return wrong
}
