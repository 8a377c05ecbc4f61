package sim

import (
	"testing"
	"time"
)

// stepping is the step loop of an engine with round times: 10 ms a step, 1 ms a prompt token, 100 ms to
// post a transfer. Its steps are put together, and never taken.
func stepping(t *testing.T) *steps {
	t.Helper()
	p := &Profile{About: "round", PrefillMS: Curve{{0, 4}, {100, 104}}, PostMS: Curve{{0, 100}, {1, 100}}, PullTurnMS: Curve{{0, 110}, {1, 110}}, PullMS: Curve{{0, 0}, {1, 0}}}
	p.StepMS.Base, p.StepMS.Stream, p.StepMS.ContextToken = 10, 1, 0.5
	o := Options{Profile: p, MaxBatchedTokens: 100, NumBlocks: 8, MaxSeqs: 8, BlockSize: 16}
	return &steps{c: &core{o: o, ledger: newLedger(o), life: t.Context()}, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

func expectStep(t *testing.T, s *steps, took time.Duration, tokens ...*sequence) {
	t.Helper()
	b := s.begin()
	if b == nil {
		t.Fatal("no step")
	}
	same := len(b.tokens) == len(tokens)
	for i := range b.tokens {
		same = same && b.tokens[i] == tokens[i]
	}
	if b.took != took || !same {
		t.Errorf("a step of %v with %d tokens, want %v with %d, or others", b.took, len(b.tokens), took, len(tokens))
	}
	s.end(b)
}

func expectIdle(t *testing.T, s *steps) {
	t.Helper()
	if b := s.begin(); b != nil {
		t.Errorf("a step of %v with %d tokens, want none", b.took, len(b.tokens))
	}
}

// Prompts share a step up to max_num_batched_tokens, and the step's own time is in it once.
func TestPromptsShareSteps(t *testing.T) {
	s := stepping(t)
	one, two, three := s.compute(&reservation{}, 40, 40, 1), s.compute(&reservation{}, 50, 50, 1), s.compute(&reservation{}, 30, 30, 1)
	expectStep(t, s, (4+40+50+10)*time.Millisecond, one, two)
	expectStep(t, s, (4+20)*time.Millisecond, three)
	expectIdle(t, s)
	if one.tokens != 1 || three.tokens != 1 {
		t.Errorf("%d and %d tokens, want one each", one.tokens, three.tokens)
	}
}

// Beside running answers, which get their tokens in the same step, a prompt costs no step of its own.
func TestPromptsAndAnswersShareSteps(t *testing.T) {
	s := stepping(t)
	answer := s.join(20, 3)
	prompt := s.compute(&reservation{}, 40, 40, 2)
	expectStep(t, s, (10+1+10+40)*time.Millisecond, answer, prompt)
	expectStep(t, s, (10+2+10+20)*time.Millisecond, answer, prompt)
	expectStep(t, s, (10+1+10)*time.Millisecond, answer)
	expectIdle(t, s)
}

// What comes while answers run waits for the step under way and for the one that is put together already.
func TestWhatComesLateIsInTheStepAfterNext(t *testing.T) {
	s := stepping(t)
	answer := s.join(20, 4)
	under := s.begin()
	pulled := s.join(20, 1)
	s.end(under)
	expectStep(t, s, 21*time.Millisecond, answer)
	expectStep(t, s, 32*time.Millisecond, answer, pulled)
	expectStep(t, s, 21*time.Millisecond, answer)
	expectIdle(t, s)
}

// An idle engine's prompt alone takes a step to itself, and the next prompt is the step after it.
func TestAPromptBehindOneThatIsComputed(t *testing.T) {
	s := stepping(t)
	one := s.compute(&reservation{}, 100, 100, 1)
	under := s.begin()
	two := s.compute(&reservation{}, 50, 50, 1)
	three := s.compute(&reservation{}, 50, 50, 1)
	s.end(under)
	if one.tokens != 1 || under.took != 104*time.Millisecond {
		t.Errorf("%d tokens after %v", one.tokens, under.took)
	}
	expectStep(t, s, 54*time.Millisecond, two)
	expectStep(t, s, 54*time.Millisecond, three)
	expectIdle(t, s)
}

// Posting transfers holds up the step that does it, and so the answers in it.
func TestPostingHoldsTheStep(t *testing.T) {
	s := stepping(t)
	answer := s.join(20, 2)
	s.posts = []*post{{tokens: 1, posted: make(chan struct{})}, {tokens: 1, posted: make(chan struct{})}}
	first, second := s.posts[0], s.posts[1]
	b := s.begin()
	if b.took != (100+100+21)*time.Millisecond || len(b.posts) != 2 {
		t.Errorf("a step of %v with %d transfers", b.took, len(b.posts))
	}
	at := time.Now()
	s.announce(b, at)
	<-first.posted
	<-second.posted
	if first.at.Sub(at) != 100*time.Millisecond || second.at.Sub(at) != 200*time.Millisecond {
		t.Errorf("posted after %v and %v", first.at.Sub(at), second.at.Sub(at))
	}
	s.end(b)
	expectStep(t, s, 21*time.Millisecond, answer)
}

// An answer whose client left is in no further step.
func TestWhoLeavesTakesNoStep(t *testing.T) {
	s := stepping(t)
	stays, leaves, queued := s.join(20, 5), s.join(20, 5), s.compute(&reservation{}, 100, 100, 1)
	b := s.begin() // with the step after it
	s.leave(leaves)
	s.leave(queued)
	s.end(b)
	s.end(s.begin())
	expectStep(t, s, 21*time.Millisecond, stays)
}

// Prompts that fit in no step yet wait for their turn, and run as soon as they fit.
func TestPromptsQueueForAStep(t *testing.T) {
	s := stepping(t)
	s.c.o.NumBlocks = 100
	l := newLedger(s.c.o)
	s.c.ledger = l
	var all []*reservation
	for i := range 3 {
		r := &reservation{computes: true, seats: []*seat{{kv: kv{tokens: 60}, want: 4}}}
		l.reserve(r)
		all = append(all, r)
		if r.granted != (i < 2) {
			t.Errorf("prompt %d runs: %v", i, r.granted)
		}
	}
	s.compute(all[0], 60, 60, 1)
	s.end(s.begin())
	if !all[2].granted {
		t.Error("the third prompt queues though the first is computed")
	}
	for _, r := range all {
		l.finish(r)
	}
	if l.ahead != 0 {
		t.Errorf("%d tokens are ahead in an engine without requests", l.ahead)
	}
}

// On an engine with running answers a pull waits for a step that posts it.
func TestAPullWaitsForTheStepThatPostsIt(t *testing.T) {
	s := stepping(t)
	answer := s.join(20, 9)
	under := s.begin()
	pulled := make(chan struct{})
	go func() { s.transfer(1); close(pulled) }()
	for queued := false; !queued; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		queued = len(s.posts) == 1
		s.mu.Unlock()
	}
	s.end(under)
	expectStep(t, s, 21*time.Millisecond, answer) // it was put together before
	posts := s.begin()
	if len(posts.posts) != 1 {
		t.Fatalf("a step of %v with %d transfers", posts.took, len(posts.posts))
	}
	select {
	case <-pulled:
		t.Fatal("the pull ended before it was posted")
	default:
	}
	s.announce(posts, time.Now())
	<-pulled
}
