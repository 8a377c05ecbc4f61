package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"xpyd/bench/dataset"
	"xpyd/bench/result"
)

// failures are the codes of failures with their counts, the most frequent first.
func failures(t *result.Totals) string {
	var words []string
	for _, code := range byCount(t.Failures) {
		words = append(words, fmt.Sprintf("%s=%d", code, t.Failures[code]))
	}
	return strings.Join(words, " ")
}

func byCount(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
}

// bundled is the mean number of tokens in an event from which the gaps between events are no longer
// the gaps between tokens.
const bundled = 1.05

// primed is the least share of the input tokens that comes from the cache when all prompts are
// cached. vLLM computes the last block of a prompt again.
const primed = 0.9

// Preface is what vLLM prints before its block: how the load was sent.
func Preface(c result.Config) string {
	var b strings.Builder
	if c.Ramp != nil {
		fmt.Fprintf(&b, "Traffic ramp-up strategy: %s.\nWill increase RPS from %v to %v RPS over the duration of the benchmark.\n", c.Ramp.Strategy, c.Ramp.From, c.Ramp.To)
	} else {
		fmt.Fprintf(&b, "Traffic request rate: %s\n", rate(c.Rate))
	}
	shape, limit := "Gamma distribution", "None"
	if c.Burstiness != nil && *c.Burstiness == 1 {
		shape = "Poisson process"
	}
	if c.Concurrency > 0 {
		limit = fmt.Sprint(c.Concurrency)
	}
	fmt.Fprintf(&b, "Burstiness factor: %s (%s)\nMaximum request concurrency: %s\n", rate(c.Burstiness), shape, limit)
	return b.String()
}

// Notes tell a reader what to know about a run's figures, a line each: failures by code with an
// example, the tool's own lateness, and how the load differed from the requested one.
func Notes(r *result.Run) []string {
	t := r.Totals
	var notes []string
	add := func(ok bool, format string, args ...any) {
		if ok {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	for _, code := range byCount(t.Failures) {
		add(true, "failed with %s: %d, as in: %s", code, t.Failures[code], example(r, code))
	}
	late := r.Values(result.Lateness)
	add(true, "the tool's own lateness (ms): median %.2f, P99 %.2f, max %.2f; it woke up within %.2f in 99 %% of cases; seed %d",
		late.Median(), late.Percentile(99), late.Max(), float64(r.WakeP99US)/1000, r.Config.Seed)
	add(r.Unreached(), "concurrency %d was never reached: no more than %d requests were open at once; send more of them, or longer ones", r.Config.Concurrency, t.Open())
	add(r.Interrupted, "interrupted: %d requests were broken off, and %d never sent", t.Cut, r.Unsent)
	add(!r.Interrupted && r.Unsent > 0, "%d requests of the plan were not sent before the duration was over", r.Unsent)
	add(r.Prompts.LengthBy == dataset.ByBytes, "the server does not count tokens at /tokenize: prompts have %d bytes for each token asked for", dataset.BytesPerToken)
	add(r.Prompts.Inexact > 0, "%d prompts could not be cut to the requested length; the input tokens above are the server's count", r.Prompts.Inexact)
	add(r.Prompts.Reused > 0, "%d requests repeat an earlier prompt, which a prefix cache finds", r.Prompts.Reused)
	add(t.Short > 0, "%d answers had fewer tokens than asked for", t.Short)
	add(r.Config.Primed && t.CachedTokens == 0, "each prompt was sent once before the run; the server does not say whether it found them in its cache (vLLM: --enable-prompt-tokens-details)")
	add(r.Config.Primed && t.CachedTokens > 0 && float64(t.CachedTokens) < primed*float64(t.InputTokens), "each prompt was sent once before the run, and many were no longer in the cache: this is not decoding alone")
	add(t.CachedTokens > 0, "%d of %d input tokens came from a cache", t.CachedTokens, t.InputTokens)
	perEvent := float64(t.OutputTokens) / float64(max(t.Events, 1))
	add(perEvent > bundled, "the server sent %.2f tokens an event: ITL is the gap between events, not tokens", perEvent)
	add(t.Events > t.OutputTokens, "the server sent %d events for %d tokens: some carry none, and TTFT or E2EL may end with such an event", t.Events, t.OutputTokens)
	asked := askedTokens(r)
	add(asked > 0 && asked != t.InputTokens, "the server counted %d input tokens, by its own /tokenize it was sent %d", t.InputTokens, asked)
	return append(notes, engineNotes(r.Engines)...)
}

// askedTokens is the number of tokens in the prompts of whole answers. 0 means that it is not known,
// as for a chat, where the server adds its template.
func askedTokens(r *result.Run) (tokens int) {
	if r.Prompts.LengthBy != dataset.ByTokenize || r.Prompts.Inexact > 0 || r.Config.API != "completions" {
		return 0
	}
	for i := range r.Records {
		if rec := &r.Records[i]; rec.OK() {
			tokens += rec.Asked
		}
	}
	return tokens
}

// example is the text of the first failure of a code, on one line.
func example(r *result.Run, code string) string {
	i := slices.IndexFunc(r.Records, func(rec result.Record) bool { return rec.Failure == code })
	if i < 0 {
		return ""
	}
	return strings.Join(strings.Fields(r.Records[i].Error), " ")
}
