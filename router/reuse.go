package router

// Reuse is how many prompt tokens of the last adviceWindow the decode engines did not have to compute,
// because they pulled the blocks from a prefill engine. The figures come from the engines' own
// counters.
type Reuse struct {
	PromptTokens int64 `json:"prompt_tokens"`
	PulledTokens int64 `json:"pulled_tokens"`
	// Ratio is PulledTokens divided by PromptTokens; −1 if there were none.
	Ratio float64 `json:"ratio"`
	// NothingPulled are the decode engines that answer two-leg requests and pull nothing.
	NothingPulled []string `json:"nothing_pulled,omitempty"`
}

// reuse is what the window and the decode pool say.
func (s *Snapshot) reuse(window bucket) Reuse {
	r := Reuse{PromptTokens: window.prompt, PulledTokens: window.pulled, Ratio: -1}
	if window.prompt > 0 {
		r.Ratio = float64(window.pulled) / float64(window.prompt)
	}
	for _, b := range s.decode.backends {
		if b.NothingPulled() {
			r.NothingPulled = append(r.NothingPulled, b.URL)
		}
	}
	return r
}

// noteReuse counts what a decode engine had between two readings. Readings that do not tell, or
// that fall, count nothing.
func (b *Backend) noteReuse(was, is *EngineState) {
	prompt, pulled := is.PromptTokens-was.PromptTokens, is.PulledTokens-was.PulledTokens
	if was.PulledTokens >= 0 && was.PromptTokens >= 0 && prompt >= 0 && pulled >= 0 {
		b.router.traffic.reused(is.at, prompt, pulled)
	}
}

func (t *traffic) reused(now, prompt, pulled int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(now)
	b.prompt += prompt
	b.pulled += pulled
}

// Handed counts the answers that a decode backend has given with a handle.
func (b *Backend) Handed() int64 { return b.handed.Load() }

// SetNothingPulled notes that a decode backend answers two-leg requests and pulls nothing.
func (b *Backend) SetNothingPulled(nothing bool) { b.unread.Store(nothing) }

// NothingPulled is the last value of SetNothingPulled.
func (b *Backend) NothingPulled() bool { return b.unread.Load() }
