package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"unicode"

	"xpyd/admin/desk"
)

// shownFailures is how many failed completions Failures prints one by one.
const shownFailures = 20

// Failures prints the completions that failed last: a table by code and engine, and the newest ones. asJSON prints GET
// /failures.
func (c *Client) Failures(ctx context.Context, w io.Writer, asJSON bool) error {
	var f desk.Failures
	if _, err := c.call(ctx, http.MethodGet, "/failures", nil, &f); err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(f)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s since the process began, not counting those that are the clients' fault; the last %d by code and engine:\n\n",
		counted(int64(f.Total), "failed completion"), len(f.Failures))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "COUNT\tCODE\tENGINE\tFIRST\tLAST\tTHE LAST ERROR")
	for _, g := range f.Groups {
		_, _ = fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", g.Count, g.Code, orDash(g.Backend), sinceWhen(g.First), sinceWhen(g.Last), plain(g.Error))
	}
	_, _ = fmt.Fprintln(t, "\nTIME\tREQUEST_ID\tCODE\tSTATUS\tMODEL\tKEY\tPREFILL\tDECODE\tPHASES")
	for _, e := range f.Failures[:min(len(f.Failures), shownFailures)] {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", sinceWhen(e.Start+e.Total/1e3), e.ID, e.Code, e.Status,
			orDash(plain(e.Model)), orDash(e.Key), orDash(e.Prefill), orDash(e.Decode), phasesLine(e.Phases))
	}
	_ = t.Flush() // a Builder takes all
	_, err := io.WriteString(w, b.String())
	return err
}

// plain is a text that a client or an engine has chosen, without what would move the cursor of a terminal, colour it or end a
// cell of a table.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

func phasesLine(all []desk.Phase) string {
	var words []string
	for _, p := range all {
		words = append(words, fmt.Sprintf("%s %.0f ms", p.Name, p.To-p.From))
	}
	return strings.Join(words, ", ")
}
