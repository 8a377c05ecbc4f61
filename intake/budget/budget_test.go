package budget

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"
)

// fill makes a body of n bytes whose announced length is announced.
func fill(t *testing.T, on *Bodies, n, announced int64) *Body {
	t.Helper()
	bb := &Body{}
	for bb.Size() < n {
		if bb.Full() {
			if r := bb.Grow(on, Client{}, announced); r != Granted {
				t.Fatalf("refused at %d of %d bytes: %d", bb.Size(), n, r)
			}
		}
		for len(bb.b) < cap(bb.b) && bb.Size() < n {
			bb.b = append(bb.b, byte(bb.Size()%251))
		}
	}
	return bb
}

// held returns what the body's buffers take in memory.
func (bb *Body) held() int64 {
	n := int64(cap(bb.b))
	for _, p := range bb.pieces {
		n += int64(cap(p))
	}
	return n
}

// Bodies of all sizes come and go. What they hold is charged, and what is idle is bounded.
func TestBodyIsChargedForWhatItHolds(t *testing.T) {
	s := NewBodies(64<<20, 4<<20, 1)
	var bodies []*Body
	held := func() (n int64) {
		for _, bb := range bodies {
			n += bb.held()
		}
		return n
	}
	for range 500 {
		n := int64(1) << rand.IntN(21)
		n += rand.Int64N(n)
		announced := n
		if rand.IntN(2) == 0 {
			announced = -1
		}
		bb := fill(t, s, n, announced)
		bodies = append(bodies, bb)
		if most := max(2*n, n+pieceSize); n > leastBuffer && announced > 0 && bb.held() > most {
			t.Fatalf("%d bytes are held for the %d that came, want %d at most", bb.held(), n, most)
		}
		if rand.IntN(2) == 0 {
			bb.End(s)
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i % 251)
			}
			if !bytes.Equal(bb.b, want) {
				t.Fatalf("a body of %d bytes is not what came", n)
			}
		}
		if used := s.used; used != held() {
			t.Fatalf("%d bytes are charged, %d held", used, held())
		}
		for len(bodies) > 10 {
			bodies[0].Free(s)
			bodies = bodies[1:]
		}
		if s.pool.idle > s.pool.limit {
			t.Fatalf("%d bytes are idle, want %d at most", s.pool.idle, s.pool.limit)
		}
	}
	for _, bb := range bodies {
		bb.Free(s)
	}
	if s.used != 0 || s.pool.idle == 0 {
		t.Errorf("%d bytes still charged, %d idle", s.used, s.pool.idle)
	}
}

// A body that came in pieces lies in a buffer of an earlier one of about its size.
func TestLongBodiesUseBuffersAgain(t *testing.T) {
	const mib = 1 << 20
	s := NewBodies(112*mib, 8*mib, 1) // 7 MiB may be idle
	whole := func(n, announced int64) *byte {
		bb := fill(t, s, n, announced)
		bb.End(s)
		defer bb.Free(s)
		if bb.Size() != n || bb.b[n-1] != byte((n-1)%251) || s.used != bb.held() {
			t.Fatalf("%d bytes in place of %d; %d are charged, %d held", bb.Size(), n, s.used, bb.held())
		}
		return &bb.b[0]
	}
	first := whole(600<<10, 600<<10)
	if whole(590<<10, 590<<10) != first || whole(600<<10, -1) != first {
		t.Error("a buffer was not used again")
	}
	if whole(300<<10, 300<<10) == first {
		t.Error("a body lies in a buffer that is larger than what is charged for it")
	}
	if last := whole(3*mib+1, 3*mib+1); whole(3*mib+1, 3*mib+1) != last {
		t.Error("older buffers kept their place when the limit was reached")
	}
	if s.pool.idle > s.pool.limit {
		t.Errorf("%d bytes are idle of %d", s.pool.idle, s.pool.limit)
	}
	s.Resize(mib, mib, 1)
	if s.pool.idle != 0 || len(s.pool.whole) != 0 {
		t.Errorf("%d bytes are idle after a resize", s.pool.idle)
	}
}

// A long body that announces its length takes an idle buffer early, and nothing else early: without one,
// or without room in its client's share, what it holds follows what has come.
func TestLongBodyTakesNothingEarlyButWhatIsIdle(t *testing.T) {
	const announced, came = 600 << 10, firstPiece + 1
	a := Client{Key: 1}
	s := NewBodies(64<<20, 8<<20, 0.5)
	begin := func() *Body {
		bb := &Body{}
		for bb.Size() < came {
			if bb.Full() {
				if r := bb.Grow(s, a, announced); r != Granted {
					t.Fatal("refused:", r)
				}
			}
			bb.Came(min(len(bb.Room()), came-int(bb.Size())))
		}
		return bb
	}
	first := begin()
	if first.held() > 2*came {
		t.Fatalf("%d bytes are held for the %d that came, although none were idle", first.held(), came)
	}
	first.Free(s)
	whole := fill(t, s, announced, announced)
	whole.End(s)
	size := whole.held()
	whole.Free(s)

	early, late := begin(), begin()
	if early.held() != size || late.held() > 2*came {
		t.Errorf("%d and %d bytes are held, want the idle %d and %d at most", early.held(), late.held(), size, 2*came)
	}
	if used := s.used; used != early.held()+late.held() {
		t.Errorf("%d bytes are charged, %d held", used, early.held()+late.held())
	}
	var waiting []*Body
	for whole := int64(0); whole < 2*s.pool.limit; whole += size { // bodies come and go, and each leaves a buffer
		b := fill(t, s, announced, -1)
		b.End(s)
		b.Free(s)
		waiting = append(waiting, begin())
	}
	if early := s.used - int64(len(waiting)+2)*2*came; early > s.pool.limit {
		t.Errorf("%d bytes are charged for what is only announced, want %d at most", early, s.pool.limit)
	}
	for _, b := range append(waiting, late) {
		b.Free(s)
	}
	early.Free(s)
	if s.pool.early != 0 || s.used != 0 {
		t.Errorf("%d and %d bytes are left of bodies that have ended", s.pool.early, s.used)
	}
	_ = s.Take(a, s.share-s.held[a]-2*firstPiece, 0)
	idle := len(s.pool.whole)
	poor := begin()
	if poor.held() > 2*came || idle == 0 || len(s.pool.whole) != idle || s.pool.early != 0 {
		t.Errorf("%d bytes are held beyond the share, %d buffers of %d are idle", poor.held(), len(s.pool.whole), idle)
	}
}

func TestBudget(t *testing.T) {
	a, b := Client{Key: 1}, Client{Key: 2}
	const mib = 1 << 20
	budget := NewBodies(16*mib, mib, 0.5)
	steps := []struct {
		what     string
		of       Client
		n, whole int64
		want     Refusal
	}{
		{"the share of one", a, 8 * mib, 8 * mib, Granted},
		{"more", a, 1, 1, OverShare},
		{"another", b, 6 * mib, 6 * mib, Granted},
		{"large in the reserve", b, 1, smallBody + 1, Spent},
		{"small in the reserve", b, smallBody, smallBody, Granted},
		{"a release in it", Client{}, mib, 0, Granted},
		{"more than all", Client{}, 2 * mib, 0, Spent},
	}
	for _, s := range steps {
		if got := budget.Take(s.of, s.n, s.whole); got != s.want {
			t.Fatalf("%s: %d, want %d", s.what, got, s.want)
		}
	}
	budget.Give(a, 8*mib)
	budget.Give(b, 6*mib+smallBody)
	budget.Give(Client{}, mib)
	if budget.used != 0 || len(budget.held) != 0 {
		t.Errorf("%d bytes and %d clients left", budget.used, len(budget.held))
	}
	small := NewBodies(mib, mib, 0.1)
	if small.Take(a, mib+pieceSize, mib+pieceSize) != Granted {
		t.Error("a budget of one body does not hold it")
	}
}

// BenchmarkBody measures what a body costs besides its reads: buffers, charges and copies.
func BenchmarkBody(b *testing.B) {
	chunk := make([]byte, 64<<10)
	for _, size := range []int64{2 << 10, 40 << 10, 400 << 10, 4 << 20, 32 << 20} {
		b.Run(strconv.FormatInt(size>>10, 10)+" KiB", func(b *testing.B) {
			s := NewBodies(1<<30, 32<<20, 0.5)
			of := Client{Key: 1}
			var bb Body
			b.ReportAllocs()
			b.SetBytes(size)
			for b.Loop() {
				for bb.Size() < size {
					if bb.Full() && bb.Grow(s, of, size) != Granted {
						b.Fatal("refused")
					}
					n := min(len(chunk), cap(bb.b)-len(bb.b), int(size-bb.Size()))
					bb.b = append(bb.b, chunk[:n]...)
				}
				bb.End(s)
				bb.Free(s)
			}
		})
	}
}

// A buffer for which there is no room at all takes none of the idle ones with it.
func TestABufferTooLargeDropsNoOther(t *testing.T) {
	p := pool{limit: 4 << 20}
	p.put(make([]byte, 0, 1<<20))
	p.put(make([]byte, 0, 5<<20))
	if len(p.whole) != 1 || p.idle != 1<<20 {
		t.Errorf("%d buffers of %d bytes are idle, want the one of a MiB", len(p.whole), p.idle)
	}
}

// A client may have one orphan for four completions that it waits for, and two in any case. Whoever waits goes on when
// there is room, however that came.
func TestOrphans(t *testing.T) {
	id := Client{Key: 1}
	c := NewCounts(0)
	waits := func(turn chan struct{}) bool {
		select {
		case <-turn:
			return false
		default:
			return turn != nil
		}
	}
	begin := func() chan struct{} {
		c.Begin(id)
		return c.Wait(id)
	}
	if begin() != nil {
		t.Fatal("a client without orphans waits")
	}
	c.Orphan(id)
	c.Orphan(id)
	first, second, third := begin(), begin(), begin()
	if !waits(first) || !waits(second) || !waits(third) {
		t.Fatal("a client with two orphans goes on")
	}
	c.Begin(Client{Key: 2})
	if c.Wait(Client{Key: 2}) != nil {
		t.Error("another client waits")
	}
	c.Quit(id, second)
	c.End(id)
	c.Settled(id)
	if waits(first) || !waits(third) {
		t.Error("not the first one, or not only the first, goes on after an orphan")
	}
	c.Settled(id)
	if waits(third) {
		t.Error("one waits for no orphan")
	}
	for range 5 {
		c.Begin(id)
	}
	for range 2 {
		c.Orphan(id)
	}
	for range 8 {
		c.Begin(id)
	}
	if c.Wait(id) != nil {
		t.Error("a client with many completions may not have two orphans and more")
	}
	for range 30 {
		c.End(id)
		c.Settled(id)
	}
	c.End(Client{Key: 2})
	if len(c.n) != 0 {
		t.Errorf("kept: %v", c.n)
	}
}
