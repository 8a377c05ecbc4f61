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
	waits   flows          // those with waiters, the next first
	classes map[int]*class // those with waiters, by priority
	turns   int            // flows that have joined
	moved   []*flow        // whose waiters were passed over since the last rewind
	crowd   crowd
}

// class is the flows of one priority. What others are given says nothing about the turns among them.
type class struct {
	priority int
	floor    int64            // what the flow that was served last had been given before that
	flows    map[uint64]*flow // those with waiters, and some that are still ahead of the floor, by Want.Flow
	waiting  int              // those with waiters
	sweep    int              // flows is swept when it has as many
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
	f := l.flow(wt.want.Flow, wt.want.Priority)
	wt.flow = f
	f.line = append(f.line, wt)
	l.crowd.add(wt)
	if len(f.line) > 1 {
		return
	}
	// A flow that had no waiters has saved up nothing.
	f.given = max(f.given, f.class.floor)
	f.class.waiting++
	l.turns++
	f.turn = l.turns
	heap.Push(&l.waits, f)
}

// flow returns the flow of that client and priority.
func (l *fairLine) flow(client uint64, priority int) *flow {
	c := l.classes[priority]
	if c == nil {
		c = &class{priority: priority, flows: map[uint64]*flow{}}
		if l.classes == nil {
			l.classes = map[int]*class{}
		}
		l.classes[priority] = c
	}
	f := c.flows[client]
	if f == nil {
		if len(c.flows) >= c.sweep {
			c.forget()
		}
		f = &flow{class: c}
		c.flows[client] = f
	}
	return f
}

// mostAhead bounds the flows of a class that are remembered without waiters. A flow that is forgotten has its next
// turn sooner.
const mostAhead = 4096

// forget drops the flows for which a new one would be no different, and if many others have no waiters, these too.
func (c *class) forget() {
	for _, all := range [...]bool{false, true} {
		if all && len(c.flows)-c.waiting <= mostAhead {
			break
		}
		for client, f := range c.flows {
			if len(f.line) == 0 && (all || f.given <= c.floor) {
				delete(c.flows, client)
			}
		}
	}
	c.sweep = 2*len(c.flows) + 64
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

// remove takes wt out of the line. Nobody is ahead of others of its class once nobody of the class waits.
func (l *fairLine) remove(wt *waiter) {
	f := wt.flow
	wt.flow = nil
	i := slices.Index(f.line, wt)
	f.line = slices.Delete(f.line, i, i+1)
	l.crowd.remove(wt)
	if len(f.line) > 0 {
		heap.Fix(&l.waits, f.at)
		return
	}
	heap.Remove(&l.waits, f.at)
	if f.class.waiting--; f.class.waiting == 0 {
		delete(l.classes, f.class.priority)
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
