package routing

import (
	"fmt"
	"math"
	"slices"
	"time"

	"xpyd/sim"
)

// outputTokens is how many tokens most answers have, because TTFT is what matters here.
const outputTokens = 24

func message(role, text string) sim.Message { return sim.Message{Role: role, Content: text} }

// systemPrompts has few long system prompts and many users who each ask one thing. The most popular
// one is used about five times as often as the tenth. All of them together are more than one
// engine's cache holds.
func systemPrompts(g *generator) {
	var systems []sim.Message
	var upTo []float64
	sum := 0.0
	for i := range 24 {
		systems = append(systems, message("system", words(g.Rand, between(g.Rand, 2000, 4000))))
		sum += math.Pow(float64(i+1), -0.7)
		upTo = append(upTo, sum)
	}
	g.arrivals(g.rate, func(at time.Duration) {
		i, _ := slices.BinarySearch(upTo, g.Float64()*sum)
		question := message("user", words(g.Rand, between(g.Rand, 200, 600)))
		g.add(turn{at: at, session: fmt.Sprintf("user-%d", len(g.turns)), messages: []sim.Message{systems[i], question}, output: outputTokens})
	})
}

// chats extends the last turn by its answer and a new message, after a time to think. All chats
// have the same short system prompt.
func chats(g *generator) {
	const turns = 6 // of a chat, about
	system := message("system", words(g.Rand, 100))
	chat := 0
	g.arrivals(g.rate/turns, func(at time.Duration) {
		chat++
		messages := []sim.Message{system}
		asked := between(g.Rand, 300, 1200) // the first message brings something to talk about
		for range between(g.Rand, turns-3, turns+3) {
			messages = append(messages, message("user", words(g.Rand, asked)))
			g.add(turn{at: at, session: fmt.Sprintf("chat-%d", chat), messages: slices.Clone(messages), output: outputTokens})
			messages = append(messages, message("assistant", sim.Text(sim.ChatPrompt(messages...), outputTokens)))
			at += 1500*time.Millisecond + g.gap(1/1.5)
			asked = between(g.Rand, 50, 250)
		}
	})
}

// documents has long documents. Each is asked about once and, some seconds later, once more.
func documents(g *generator) {
	document := 0
	g.arrivals(g.rate/2, func(at time.Duration) {
		document++
		text := message("system", words(g.Rand, between(g.Rand, 2000, 4000)))
		for range 2 {
			question := message("user", words(g.Rand, between(g.Rand, 20, 80)))
			g.add(turn{at: at, session: fmt.Sprintf("document-%d", document), messages: []sim.Message{text, question}, output: outputTokens})
			at += 2*time.Second + g.gap(1/2.0)
		}
	})
}

// unique shares nothing, so caches are of no use.
func unique(g *generator) {
	g.arrivals(g.rate, func(at time.Duration) {
		prompt := message("user", words(g.Rand, between(g.Rand, 200, 2000)))
		g.add(turn{at: at, session: fmt.Sprintf("one-%d", len(g.turns)), messages: []sim.Message{prompt}, output: outputTokens})
	})
}

// bursts has all of the above, and half of it comes in one of each five seconds.
func bursts(g *generator) {
	rate := g.rate
	for _, part := range []struct {
		share    float64
		generate func(*generator)
	}{{0.4, systemPrompts}, {0.3, chats}, {0.15, documents}, {0.15, unique}} {
		g.rate = rate * part.share
		part.generate(g)
	}
	for i := range g.turns {
		g.turns[i].at = inBursts(g.turns[i].at)
	}
}

// inBursts moves an evenly spread time. The first half of each five seconds goes into the first of
// them, the other half into the four that follow. It keeps the order.
func inBursts(at time.Duration) time.Duration {
	const period, burst = 5 * time.Second, time.Second
	begin, in := at.Truncate(period), at%period
	if in < period/2 {
		return begin + in*burst/(period/2)
	}
	return begin + burst + (in-period/2)*(period-burst)/(period/2)
}

// shortAndLong has prompts of 200 tokens in four of five cases, and of 8,000 in the others. Nothing
// is shared.
func shortAndLong(g *generator) {
	g.arrivals(g.rate, func(at time.Duration) {
		tokens := 200
		if g.IntN(5) == 0 {
			tokens = longPrompt
		}
		prompt := message("user", words(g.Rand, tokens))
		g.add(turn{at: at, session: fmt.Sprintf("one-%d", len(g.turns)), messages: []sim.Message{prompt}, output: 2 * outputTokens})
	})
}

// fixed draws prompts of each of the lengths alike, and answers of 250 tokens.
func fixed(tokens ...int) func(*generator) {
	return func(g *generator) {
		g.arrivals(g.rate, func(at time.Duration) {
			prompt := message("user", words(g.Rand, tokens[g.IntN(len(tokens))]))
			g.add(turn{at: at, session: fmt.Sprintf("one-%d", len(g.turns)), messages: []sim.Message{prompt}, output: 250})
		})
	}
}

// longPrompt is the tokens of the long ones.
const longPrompt = 8000
