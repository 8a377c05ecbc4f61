package way

import (
	"fmt"
	"math"
)

// Class is the requests of about one size: how many come in a second, the mean tokens of their prompts, those of them that
// no cache has, and the tokens of their answers.
type Class struct{ Rate, Prompt, Fresh, Answer float64 }

// Plan says how many engines only prefill, and from how many fresh tokens on a prompt goes there. With none, all engines
// serve whole.
type Plan struct {
	Prefill, Engines int
	From             float64
	// Mean is the expected time of a whole answer. Share and PrefillShare are the parts of the time of an engine that answers,
	// and of one that does not, that prompts take. Answers is how many each of the former has.
	Mean, Share, PrefillShare, Answers float64
	// Traffic is what the plan is made for: requests a second, and the fresh tokens and those of the answer of one.
	Traffic Class
	// OtherMean is what answers would take with Other engines that only prefill: the best plan of the others.
	Other     int
	OtherMean float64
}

// horizon is for how long a plan looks ahead, in seconds.
const horizon = 15

const (
	mostShare = 0.95 // an engine that is busier is taken for as busy, and what it cannot do waits
	// usualRoom is how many tokens an engine's cache has if it does not say.
	usualRoom = 256_000
)

// evaluate works out what a plan does to the traffic.
func (m *Model) evaluate(p Plan, classes []Class, room float64) Plan {
	nd := float64(p.Engines - p.Prefill)
	var rate, away, awaySquare, here, hereSquare, tokens, cached float64
	for _, c := range classes {
		work := m.Prompt * c.Fresh
		rate += c.Rate
		tokens += c.Rate * c.Answer
		cached += c.Rate * c.Answer * (c.Prompt + c.Answer/2)
		if p.splits(c.Fresh) {
			away += c.Rate * work
			awaySquare += c.Rate * work * work
		} else {
			here += c.Rate * work
			hereSquare += c.Rate * work * work
		}
	}
	wait := 0.0
	p.PrefillShare = 0
	if away > 0 {
		np := float64(p.Prefill)
		p.PrefillShare = away / np
		wait = delayed(away/np, awaySquare/away/np, horizon)
	}
	hereWait := 0.0
	if here > 0 {
		hereWait = delayed(here/nd, hereSquare/here/nd, horizon)
	}
	p.Share = min(here/nd, mostShare)
	token, answers, queued := m.decode(tokens/nd, cached/max(tokens, 1e-9), p.Share, room)
	p.Answers = answers
	sum := 0.0
	for _, c := range classes {
		own := queued + m.Prompt*c.Fresh + c.Answer*token
		if p.splits(c.Fresh) {
			own += wait + m.Handoff + m.HandoffToken*c.Fresh
		} else {
			own += hereWait
		}
		sum += c.Rate * own
	}
	p.Mean = sum / rate
	p.Traffic = Class{Rate: rate, Answer: tokens / rate}
	for _, c := range classes {
		p.Traffic.Prompt += c.Rate * c.Prompt / rate
		p.Traffic.Fresh += c.Rate * c.Fresh / rate
	}
	return p
}

func (p *Plan) splits(fresh float64) bool { return p.Prefill > 0 && fresh >= p.From }

// decode is what an engine does that makes so many tokens a second of answers, each with context tokens in the cache: the
// time of a token, its answers, and the wait of those that it has no room for. Each second has token·rate answers, which
// make a step longer, so a token takes Step / (1 - share - what the answers of a second cost).
func (m *Model) decode(rate, context, share, room float64) (token, answers, wait float64) {
	each := m.Stream + m.Context*context
	most := max(1, room/max(context, 1))
	if left := 1 - share - rate*each; left > 0 {
		token = m.Step / left
	} else {
		token = math.Inf(1)
	}
	if rate*token <= most {
		return max(token, (m.Step+each)/(1-share)), rate * token, 0
	}
	token = (m.Step + each*most) / (1 - share)
	return token, most, max(0, rate*token/most-1) * horizon / 2
}

// best is the plan of the least mean, from least to most engines that prefill. other is the best of those in which none
// does, or in which some do if none does in the best.
func (m *Model) best(engines, least, most int, classes []Class, room float64) (best, other Plan) {
	whole, split := Plan{Engines: engines, Mean: math.Inf(1)}, Plan{Engines: engines, Mean: math.Inf(1)}
	for k := least; k <= most; k++ {
		if k == 0 {
			whole = m.evaluate(Plan{Engines: engines}, classes, room)
			continue
		}
		for _, c := range classes {
			if p := m.evaluate(Plan{Prefill: k, Engines: engines, From: c.Fresh}, classes, room); p.Mean < split.Mean {
				split = p
			}
		}
	}
	if split.Mean < whole.Mean {
		return split, whole
	}
	return whole, split
}

// Gain is the part of an answer's time that the plan saves beside Other, or 0 where there is none.
func (p Plan) Gain() float64 {
	if p.OtherMean <= p.Mean || math.IsInf(p.OtherMean, 1) {
		return 0
	}
	return 1 - p.Mean/p.OtherMean
}

// String says what the plan is, and why.
func (p Plan) String() string {
	if p.Traffic.Rate == 0 {
		return "no plan yet: it needs a few requests"
	}
	does := fmt.Sprintf("all %d engines serve whole requests now", p.Engines)
	if p.Prefill > 0 {
		does = fmt.Sprintf("%d of %d engines prefill now, prompts of %.0f new tokens or more", p.Prefill, p.Engines, p.From)
	}
	why := fmt.Sprintf(", because %.3g requests/s of %.0f new tokens and answers of %.0f take %.3g s each so",
		p.Traffic.Rate, p.Traffic.Fresh, p.Traffic.Answer, p.Mean)
	switch {
	case math.IsInf(p.OtherMean, 1) || p.OtherMean == 0:
		return does + why
	case p.Other == 0:
		why += fmt.Sprintf(", and %.3g s if all serve whole", p.OtherMean)
	default:
		why += fmt.Sprintf(", and %.3g s if %d prefill", p.OtherMean, p.Other)
	}
	if p.OtherMean < p.Mean {
		why += ", which is too little to change it"
	}
	return does + why
}
