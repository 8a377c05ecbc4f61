package router

import (
	"container/heap"
	"slices"
)

// slotTokens is what a request counts for in its flow besides its prompt, in tokens. It takes a slot
// for the length of its answer, however short its prompt is.
const slotTokens = 512

// fairLine is the requests that wait in a queue. The equally urgent requests of one client are a flow,
// which is served in the order of arrival. Among equally urgent flows, the next is the one that has been
// given the fewest tokens. This is start-time fair queueing: while flows wait, no flow gets further ahead
// of another than by the largest request of each, whatever their numbers of requests are. The zero value
// is an empty line. The lock of its queue guards it.
type fairLine struct {
	waits   flows             // those with waiters, the next first
	known   map[flowKey]*flow // those, and others that are still ahead of the floor of their class
	classes map[int]*class    // of those in known, by priority
	turns   int               // flows that have joined
	sweep   int               // known is swept when it has as many
	moved   []*flow           // whose waiters were passed over since the last rewind
}

// flowKey names a flow: the client, by Want.Flow, and the priority of its requests.
type flowKey struct {
	client   uint64
	priority int
}

// class is the flows of one priority. What others are given says nothing about the turns among them.
type class struct {
	priority int
	floor    int64 // what the flow that was served last had been given before that
}

// flow is the waiting requests of one client with one priority.
type flow struct {
	class  *class
	given  int64 // tokens of the requests that were served
	turn   int   // decides between flows that have been given as much
	line   []*waiter
	passed int // waiters at the head that cannot be served in this round
	at     int // in waits
}

// add puts wt into the line of its flow.
func (l *fairLine) add(wt *waiter) {
	f := l.flow(flowKey{wt.want.Flow, wt.want.Priority})
	wt.flow = f
	f.line = append(f.line, wt)
	if len(f.line) > 1 {
		return
	}
	// A flow that had no waiters has saved up nothing.
	f.given = max(f.given, f.class.floor)
	l.turns++
	f.turn = l.turns
	heap.Push(&l.waits, f)
}

// flow returns the flow of that key.
func (l *fairLine) flow(key flowKey) *flow {
	if f := l.known[key]; f != nil {
		return f
	}
	if l.known == nil {
		l.known, l.classes = map[flowKey]*flow{}, map[int]*class{}
	}
	if len(l.known) >= l.sweep {
		l.forget()
	}
	c := l.classes[key.priority]
	if c == nil {
		c = &class{priority: key.priority}
		l.classes[key.priority] = c
	}
	f := &flow{class: c}
	l.known[key] = f
	return f
}

// forget drops the flows for which a new one would be no different, and the classes without a flow.
func (l *fairLine) forget() {
	clear(l.classes)
	for key, f := range l.known {
		if len(f.line) == 0 && f.given <= f.class.floor {
			delete(l.known, key)
			continue
		}
		l.classes[key.priority] = f.class
	}
	l.sweep = 2*len(l.known) + 64
}

// next returns the waiter whose turn it is, or nil if there is none left in this round.
func (l *fairLine) next() *waiter {
	if len(l.waits) == 0 {
		return nil
	}
	f := l.waits[0]
	if f.passed == len(f.line) {
		return nil
	}
	return f.line[f.passed]
}

// pass leaves out wt, which is the next, until rewind.
func (l *fairLine) pass(wt *waiter) {
	f := wt.flow
	if f.passed == 0 {
		l.moved = append(l.moved, f)
	}
	f.passed++
	heap.Fix(&l.waits, f.at)
}

// rewind ends a round. Waiters that were passed over keep their places.
func (l *fairLine) rewind() {
	for _, f := range l.moved {
		if f.passed = 0; len(f.line) > 0 {
			heap.Fix(&l.waits, f.at)
		}
	}
	l.moved = l.moved[:0]
}

// charge counts wt, which is being served, for its flow.
func (l *fairLine) charge(wt *waiter) {
	f := wt.flow
	f.class.floor = max(f.class.floor, f.given)
	f.given += int64(wt.want.Tokens) + slotTokens
}

// remove takes wt out of the line. Nobody is ahead of anybody once the line is empty.
func (l *fairLine) remove(wt *waiter) {
	f := wt.flow
	wt.flow = nil
	i := slices.Index(f.line, wt)
	f.line = slices.Delete(f.line, i, i+1)
	if len(f.line) > 0 {
		heap.Fix(&l.waits, f.at)
		return
	}
	heap.Remove(&l.waits, f.at)
	if len(l.waits) == 0 {
		clear(l.known)
		clear(l.classes)
	}
}

// flows is a heap, for container/heap.
type flows []*flow

func (h flows) Len() int { return len(h) }

func (h flows) Less(i, j int) bool {
	f, g := h[i], h[j]
	if over := f.passed == len(f.line); over || g.passed == len(g.line) {
		return !over
	}
	switch {
	case f.class != g.class:
		return f.class.priority < g.class.priority
	case f.given != g.given:
		return f.given < g.given
	}
	return f.turn < g.turn
}

func (h flows) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push adds a flow, for container/heap.
func (h *flows) Push(x any) {
	f := x.(*flow)
	f.at = len(*h)
	*h = append(*h, f)
}

// Pop takes the last flow off, for container/heap.
func (h *flows) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return f
}
