package sim

import (
	"context"
	"slices"
	"sync"
	"time"
)

// steps is the step loop of an engine with a profile. A step has a token for each running answer and the
// prompts that came first, as many as fit in max_num_batched_tokens, whole or in part. The transfers that
// it posts make it longer. As vLLM schedules ahead, a step is put together when the one before it begins.
// What comes later is in the step after it.
type steps struct {
	c *core

	mu      sync.Mutex
	prompts []*sequence // first come, first served
	running []*sequence
	posts   []*post
	busy    bool          // a step is under way
	next    *batch        // the step after it; nil if there was nothing for it yet
	wake    chan struct{} // holds one signal for a loop without a step
	ended   chan struct{} // closed at the end of the step under way
}

// sequence is the answer of one request, with the prompt that is computed for it here, if any.
type sequence struct {
	r        *reservation // whose prompts are to be computed; nil without
	toDo     int          // tokens of them that no step has yet
	done     int          // tokens of them that have a step
	context  int          // tokens of the prompts
	left     int          // tokens of the answer that no step has yet
	tokens   int          // tokens of the answer that are there
	last     chan struct{}
	lastEnds time.Time // when the step with the last token ends; set once last is closed
}

// post is a transfer that a step begins.
type post struct {
	tokens int
	posted chan struct{}
	at     time.Time // when it began; set once posted is closed
}

// batch is what one step does.
type batch struct {
	tokens []*sequence // which get a token of their answers
	last   []*sequence // those of them that get their last one
	posts  []*post
	took   time.Duration
}

func newSteps(c *core) *steps {
	s := &steps{c: c, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	c.spawn(s.run)
	return s
}

// run takes one step after the other. Steps follow each other by the clock: a machine that is late for
// one makes the others no later. An engine that stood still goes on where it was.
func (s *steps) run() {
	at := time.Now()
	for {
		b := s.begin()
		if b == nil {
			select {
			case <-s.wake:
			case <-s.c.life.Done():
				return
			}
			at = time.Now()
			continue
		}
		s.announce(b, at)
		at = at.Add(b.took)
		if !s.sleepUntil(at) {
			return
		}
		frozen := time.Now()
		s.c.gate.wait()
		at = at.Add(time.Since(frozen))
		s.end(b)
	}
}

func (s *steps) sleepUntil(at time.Time) bool {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.c.life.Done():
		return false
	}
}

// begin returns the step that is due, and puts the one after it together. It returns nil if there is
// nothing to do.
func (s *steps) begin() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.next
	if b == nil {
		b = s.form()
	}
	if s.busy = b != nil; s.busy {
		s.next = s.form()
	}
	return b
}

// form puts a step together of what there is. It returns nil if there is nothing. s.mu is held.
func (s *steps) form() *batch {
	if len(s.running)+len(s.prompts)+len(s.posts) == 0 {
		return nil
	}
	p, prefill, b := s.c.o.Profile, s.c.o.Profile.prefillMS(s.c.o.Role), &batch{tokens: slices.Clone(s.running), posts: s.posts}
	s.posts = nil
	if len(s.running) > 0 {
		b.took = ms(p.StepMS.Base)
	} else if len(s.prompts) > 0 {
		b.took = prefill.at(0)
	}
	for _, q := range s.running {
		b.took += ms(p.StepMS.Stream + p.StepMS.ContextToken*float64(q.context))
	}
	for room := s.c.o.MaxBatchedTokens - len(s.running); room > 0 && len(s.prompts) > 0; {
		q := s.prompts[0]
		part := min(room, q.toDo)
		b.took += prefill.at(q.done+part) - prefill.at(q.done)
		room, q.done, q.toDo = room-part, q.done+part, q.toDo-part
		s.c.ledger.stepped(q.r, part)
		if q.toDo > 0 {
			break
		}
		s.prompts, s.running = s.prompts[1:], append(s.running, q)
		b.tokens = append(b.tokens, q)
	}
	for _, x := range b.posts {
		b.took += p.PostMS.at(x.tokens)
	}
	for _, q := range b.tokens {
		if q.left--; q.left == 0 {
			b.last = append(b.last, q)
		}
	}
	s.running = slices.DeleteFunc(s.running, func(q *sequence) bool { return q.left <= 0 })
	return b
}

// announce tells those that wait for it when the step ends, or their transfer begins.
func (s *steps) announce(b *batch, at time.Time) {
	ends := at.Add(b.took)
	for _, x := range b.posts {
		at = at.Add(s.c.o.Profile.PostMS.at(x.tokens))
		x.at = at
		close(x.posted)
	}
	for _, q := range b.last {
		q.lastEnds = ends
		close(q.last)
	}
}

func (s *steps) end(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range b.tokens {
		q.tokens++
	}
	close(s.ended)
	s.ended = make(chan struct{})
}

// changed has the loop see what came. If the step under way has no follower, what came is the follower.
// s.mu is held.
func (s *steps) changed() {
	switch {
	case !s.busy:
		select {
		case s.wake <- struct{}{}:
		default: // the loop knows
		}
	case s.next == nil:
		s.next = s.form()
	}
}

// compute queues r's prompts, of which count tokens are to be computed, and an answer of so many tokens.
func (s *steps) compute(r *reservation, count, context, answer int) *sequence {
	q := &sequence{r: r, toDo: max(count, 1), context: context, left: max(answer, 1), last: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompts = append(s.prompts, q)
	s.changed()
	return q
}

// join lets an answer run whose prompts' KV is here.
func (s *steps) join(context, answer int) *sequence {
	q := &sequence{context: context, left: max(answer, 1), last: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = append(s.running, q)
	s.changed()
	return q
}

// leave ends q early. A step that has it already keeps it.
func (s *steps) leave(q *sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := func(other *sequence) bool { return other == q }
	s.prompts, s.running = slices.DeleteFunc(s.prompts, is), slices.DeleteFunc(s.running, is)
}

// transfer takes the time of a pull of so many tokens: until a step posts it, and while it then runs beside
// the steps. The recorded time is that of an idle engine, from the handle to the first token. So it has the post
// and the step of the token, which are not part of the time beside the steps.
func (s *steps) transfer(tokens int) {
	x := &post{tokens: tokens, posted: make(chan struct{})}
	s.mu.Lock()
	s.posts = append(s.posts, x)
	s.changed()
	s.mu.Unlock()
	select {
	case <-x.posted:
	case <-s.c.life.Done():
		return
	}
	p := s.c.o.Profile
	beside := p.PullTurnMS.at(tokens) + p.PullMS.at(tokens) - p.PostMS.at(tokens) - ms(p.StepMS.Base)
	s.c.pause(s.c.life, time.Until(x.at.Add(max(0, beside))))
}

// await waits until q has count tokens. It returns false if ctx ended first.
func (s *steps) await(ctx context.Context, q *sequence, count int) bool {
	for {
		s.mu.Lock()
		enough, ended := q.tokens >= count, s.ended
		s.mu.Unlock()
		if enough {
			return s.c.pause(ctx, 0)
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return s.c.pause(ctx, 0)
		}
	}
}

// awaitLast waits until before q's last token is due. It returns false if ctx ended first.
func (s *steps) awaitLast(ctx context.Context, q *sequence, before time.Duration) bool {
	select {
	case <-q.last:
		return s.c.pause(ctx, time.Until(q.lastEnds)-before)
	case <-ctx.Done():
		return s.c.pause(ctx, 0)
	}
}
