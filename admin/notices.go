package admin

import (
	"fmt"
	"maps"
	"slices"

	"xpyd/router"
)

// notice is something that an operator should know. Its text does not change while it holds, so that a
// screen reader says it once.
type notice struct {
	Kind string `json:"kind"` // bad: requests fail or an engine is out; warn: it costs something
	Text string `json:"text"`
}

const (
	noticeBad  = "bad"
	noticeWarn = "warn"
)

// notices lists what is wrong at the moment, and why.
func notices(s *statusEntry, snap *router.Snapshot) []notice {
	all := []notice{}
	add := func(kind, format string, args ...any) {
		all = append(all, notice{kind, fmt.Sprintf(format, args...)})
	}
	switch {
	case !s.Ready:
		add(noticeBad, "%s", s.Line)
	case s.Line != "ok":
		add(noticeWarn, "%s", s.Line)
	}
	all = append(all, outages(s.Backends)...)
	for _, b := range s.Backends {
		b.notices(add)
	}
	for _, b := range snap.Backends(router.Decode) {
		if b.NothingPulled() {
			add(noticeWarn, "decode %s answers two-leg requests and pulls no blocks: the prompts are computed twice", b.URL)
		}
	}
	if text := snap.Mismatch(); text != "" {
		add(noticeBad, "%s", text)
	}
	if s.unkept != nil {
		add(noticeBad, "changes over the admin port are refused, as the last one could not be kept: %v", s.unkept)
	}
	if s.KV.Stranded > 0 {
		add(noticeWarn, "KV blocks are stranded on prefill engines until their lease ends")
	}
	for _, d := range degradations() {
		if s.Window.Ways["decode_only"][d.reason] > 0 {
			add(noticeWarn, "in the last 15 minutes requests went to decode alone because %s (%s)", d.words, d.reason)
		}
	}
	slices.SortStableFunc(all, func(a, b notice) int {
		if a.Kind != b.Kind {
			return map[bool]int{true: -1, false: 1}[a.Kind == noticeBad]
		}
		return 0
	})
	return all
}

// notices adds which pairs with the backend are banned.
func (b *backendEntry) notices(add func(kind, format string, args ...any)) {
	if b.Role == router.Prefill.String() {
		for _, partner := range slices.Sorted(maps.Keys(b.Banned)) {
			add(noticeWarn, "%s hands no blocks to %s for now: transfers between the two failed", b.URL, partner)
		}
	}
}

// degradation is a reason of xpyd_decisions_total for requests that should have had a prefill.
type degradation struct{ reason, words string }

func degradations() []degradation {
	return []degradation{
		{"prefill_unavailable", "no prefill engine could be had"},
		{"prefill_busy", "the prefill engines were full"},
		{"prefill_failed", "the prefill failed"},
		{"no_handle", "the prefill engine gave no handle"},
		{"bad_handle", "the prefill engine's handle could not be used"},
		{"suspect_handle", "a decode engine had failed with the handle of the only prefill engine"},
	}
}
