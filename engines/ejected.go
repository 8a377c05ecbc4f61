package engines

import (
	"github.com/rs/zerolog"

	"xpyd/engines/journal"
	"xpyd/router"
)

// staysLines bounds the log lines per second about backends that fail but are not ejected.
const staysLines = 10

// teller tells what the router decides about backends.
type teller struct {
	journal *journal.Journal
	log     zerolog.Logger
	stays   zerolog.Logger // sampled: each failed leg of a backend that stays writes a line
	count   func(role, url, reason string)
}

// ejected counts and tells an ejection.
func (t *teller) ejected(e router.Ejection) {
	b, why := e.Backend, e.Reason.Words()
	if last := t.journal.Standing(b).Error; last != "" {
		why += "; its last error: " + last
	}
	if e.For == 0 {
		t.stays.Warn().Str("role", b.Role.String()).Str("backend", b.URL).Str("reason", string(e.Reason)).Str("error", why).
			Int("nth", e.Nth).Msg("backend fails, but stays: no more than half of its pool is ejected")
		return
	}
	t.count(b.Role.String(), b.URL, string(e.Reason))
	t.journal.Ejected(b)
	event := journal.About(b, journal.Ejected, "backend ejected")
	event.Reason = why
	t.journal.Tell(t.log.Warn().Str("reason", string(e.Reason)).Dur("for_ms", e.For).Int("nth", e.Nth), event)
}

// banned tells that a pair of engines is banned, or no longer.
func (t *teller) banned(x router.Pair, on bool) {
	line, kind, text := t.log.Warn(), journal.Banned, "pair banned: transfers between the two engines fail"
	if !on {
		line, kind, text = t.log.Info(), journal.Unbanned, "transfers between the two engines work again"
	}
	event := journal.About(x.Prefill, kind, text)
	event.Partner = x.Decode.URL
	t.journal.Tell(line, event)
}

// planned tells that engines without a role have another plan.
func (t *teller) planned(p router.PlanNow) {
	line := t.log.Info()
	if p.Model != "" {
		line.Str("model", p.Model)
	}
	t.journal.Tell(line, journal.Event{Kind: journal.Plan, Text: "the engines without a role have another plan", Change: p.Why})
}
