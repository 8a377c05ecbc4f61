package proxy

import (
	"xpyd/kvparams"
	"xpyd/metrics"
)

// tokensUsed returns what an answered completion was made of. D's usage says it. Without one, P has counted the
// prompt or xpyd has estimated it, and each event with a part of the answer is a token.
func (c *completion) tokensUsed() metrics.Tokens {
	d := &c.d
	u, events := kvparams.NoUsage(), -1
	switch {
	case d.streamed:
		u, events = d.relay.usage, d.relay.content
	case !d.large:
		u = d.whole.Usage()
	}
	used := metrics.Tokens{Prompt: u.Prompt, Cached: u.Cached, Completion: u.Completion, Told: u.Completion >= 0}
	if !used.Told {
		used.Completion = events
	}
	if c.path == pathDisaggregated && !c.s.dialect.Concurrent() {
		used.Cached = c.p.ans.CachedTokens // what D says of KV that came from P tells nothing
		if used.Prompt < 0 {
			used.Prompt = c.p.ans.PromptTokens
		}
	}
	if used.Prompt < 0 {
		used.Prompt = c.tokens
	}
	return used
}

// countModel counts the completion for its model. Only a model that has answered gets a series.
func (c *completion) countModel(o outcome) {
	answered := c.state.get() == stateCommitted
	m := c.s.metrics.Model(c.model, answered)
	m.Ended(int(o))
	if answered {
		m.Answered(c.tokensUsed())
	}
}
