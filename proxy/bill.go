package proxy

import (
	"bytes"

	"xpyd/intake/limits"
	"xpyd/kvparams"
	"xpyd/proxy/fault"
	"xpyd/router"
)

// bill is what a completion costs its key as far as the request alone shows it.
type bill struct {
	prompt  int // tokens; an estimate unless the client sent ids
	most    int // tokens that a choice of the answer may have, −1 if the engine chooses
	choices int
	stream  bool

	// text and media are the size of a prompt whose tokens an engine has to count: both are 0 if the client sent ids, or if
	// the engine has more of the prompt than the request.
	text, media int
}

func billOf(r *kvparams.Request) bill {
	b := bill{most: r.MostTokens(), choices: r.Choices(), stream: r.Stream()}
	tokens, exact := r.PromptTokens(1, 0)
	if b.prompt = tokens; !exact {
		text, media := r.PromptText()
		parts := r.Parts()
		b.prompt = limits.Estimate(text, parts.Images, parts.Sounds, parts.Videos)
		if r.Bypass() == kvparams.ReasonNone {
			b.text, b.media = text, media
		}
	}
	return b
}

// counted tells the router how many tokens an engine has counted in the prompt.
func (b *bill) counted(r *router.Router, tokens int) {
	if b.text > 0 {
		r.ObservePrompt(b.text, b.media, tokens)
	}
}

// spent returns the tokens of the completion, as its engines have counted them if they say so, and otherwise estimates.
// What an engine has computed is paid, however the request ends. An engine that failed has computed nothing that counts.
func (c record) spent() (prompt, answer int) {
	if !c.reached {
		return 0, 0
	}
	if c.state.get() == stateCommitted {
		used := c.tokensUsed()
		if answer = max(0, used.Completion); !used.Told && (c.givenUp() || c.d.large) {
			answer = max(answer, c.generated())
		}
		return max(0, used.Prompt), answer
	}
	prompt = max(c.p.prompt, c.p.beside.counted)
	if c.givenUp() {
		if answer = c.generated(); prompt <= 0 {
			prompt = c.bill.prompt
		}
	}
	return max(0, prompt), answer
}

// givenUp reports that the request ended because its client left or its time was over. Its engines may have worked for it
// until then.
func (c record) givenUp() bool {
	return c.failure != nil && givenUp(c.failure)
}

func givenUp(e *fault.Error) bool {
	switch e.Code {
	case fault.CodeClientGone, fault.CodeDeadline, fault.CodePrefillTimeout, fault.CodeDecodeTimeout, fault.CodeDecodeStalled:
		return true
	}
	return false
}

// generated estimates the tokens that D has made of an answer without a usage: what it makes in the time that it had,
// and no more than the request allows. Of a stream, the events show the tokens, except those that D made while the client
// did not read.
func (c record) generated() int {
	seen, had, committed := 0, c.d.worked, c.state.get() == stateCommitted
	if committed && c.d.streamed {
		seen, had = c.d.relay.content, c.d.relay.waited
	}
	if had == 0 || c.bill.stream && !committed { // no token has come
		return seen
	}
	n := seen + c.d.Lease.Backend.Generated(had)*c.bill.choices
	if most := c.bill.most * c.bill.choices; most >= 0 {
		n = min(n, max(seen, most))
	}
	return n
}

// settleKey ends what the request counts for its key.
func (c record) settleKey() {
	prompt, answer := c.spent()
	c.use.End(prompt + answer)
}

// metered reports that the request has a price that its engine may correct.
func (p *passing) metered() bool { return p.use.Account != nil && !p.route.Light }

// settle puts what the engine has counted in the place of the estimate. Numbers below 0 are not known.
func (p *passing) settle(tokens, seconds int) {
	switch {
	case tokens >= 0:
		p.bill = tokens
	case seconds >= 0:
		p.bill = seconds * limits.SecondTokens
	}
}

// tally reads what a relayed answer costs while it passes in pieces. An event of a stream counts as a token more.
type tally struct {
	hider kvparams.Hider // of copies, as nothing of the answer changes
	piece []byte         // what it has held back
}

func (m *tally) pass(p *passing, piece []byte) {
	if !p.metered() {
		return
	}
	if p.X.IsEventStream() {
		p.bill += bytes.Count(piece, eventEnd)
		return
	}
	m.piece = append(m.piece, piece...)
	n := m.hider.Hide(m.piece)
	m.piece = append(m.piece[:0], m.piece[n:]...)
}

// end is called when all of the answer has passed.
func (m *tally) end(p *passing) {
	if p.metered() && !p.X.IsEventStream() {
		if u := m.hider.Usage(); u.Prompt >= 0 {
			p.settle(u.Prompt+max(0, u.Completion), -1)
		}
	}
}

var eventEnd = []byte("\n\n")
