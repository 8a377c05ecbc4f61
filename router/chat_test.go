package router

import "math/rand/v2"

// talks is conversations, each of which waits for an answer before it says more.
type talks struct {
	chats, turns     int
	shared, document int // tokens with which all begin, and those that only one has
	ask, answer      int
	every            float64 // seconds between the beginnings of two
}

// chat is one conversation.
type chat struct {
	id     uint64
	shared int
	turn   int
	tokens int // said so far
}

const kvBlock = 128

// blocks are the hashes of the blocks of the first tokens.
func (c *chat) blocks(into []uint64, tokens int) []uint64 {
	for i := range uint64(tokens / kvBlock) {
		whose := c.id
		if int(i+1)*kvBlock <= c.shared {
			whose = 0
		}
		into = append(into, mix(whose<<20|i+1))
	}
	return into
}

// cached is how many tokens of a's prompt the engine has.
func (e *engine) cached(a *arrival) int {
	if a.chat == nil {
		return 0
	}
	has := max(e.chats[a.chat], e.chats[nil])
	return min(has, a.tokens-1) / kvBlock * kvBlock
}

// keeps notes that the engine has that many tokens of a's conversation.
func (e *engine) keeps(a *arrival, tokens int) {
	if a.chat != nil {
		e.chats[a.chat] = max(e.chats[a.chat], tokens)
		e.chats[nil] = a.chat.shared
	}
}

// feed holds the conversations.
func (ts talks) feed(l *load, times float64, rnd *rand.Rand) {
	say := func(c *chat) {
		a := &arrival{tokens: c.tokens, answer: ts.answer, chat: c, turn: c.turn}
		l.all = append(l.all, a)
		l.arrive(a)
	}
	for i := range int(float64(ts.chats) * times) {
		c := &chat{id: uint64(i) + 1, shared: ts.shared, tokens: ts.shared + ts.document}
		l.after(float64(i)*ts.every/times, func() { say(c) })
	}
	l.ended = func(a *arrival) {
		c := a.chat
		if c.turn++; c.turn < ts.turns {
			c.tokens += ts.answer + ts.ask
			l.after(0.5+rnd.Float64(), func() { say(c) })
		}
	}
}
