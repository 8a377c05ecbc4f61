package proxy

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"xpyd/netio"
)

// bodyServer has what request bodies need.
func bodyServer(l Limits) *Server {
	return &Server{bodies: bodyBudget(l), bodyPool: bodyPool{limit: l.BodyBudget / idleParts}}
}

// fill makes a body of n bytes, of which announced were announced.
func fill(t *testing.T, s *Server, n, announced int64) *bodyBuffer {
	t.Helper()
	bb := &bodyBuffer{}
	for bb.size() < n {
		if len(bb.b) == cap(bb.b) {
			if r := bb.grow(s, clientID{}, announced); r != granted {
				t.Fatalf("refused at %d of %d bytes: %d", bb.size(), n, r)
			}
		}
		for len(bb.b) < cap(bb.b) && bb.size() < n {
			bb.b = append(bb.b, byte(bb.size()%251))
		}
	}
	return bb
}

// held is what the body's buffers take in memory.
func (bb *bodyBuffer) held() int64 {
	n := int64(cap(bb.b))
	for _, p := range bb.pieces {
		n += int64(cap(p))
	}
	return n
}

// Bodies of all sizes come and go; what they hold is charged, and what is idle is bounded.
func TestBodyIsChargedForWhatItHolds(t *testing.T) {
	s := bodyServer(Limits{Body: 4 << 20, BodyBudget: 64 << 20, ClientShare: 1})
	var bodies []*bodyBuffer
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
		if most := max(2*n, n+bodyPiece); n > leastBody && announced > 0 && bb.held() > most {
			t.Fatalf("%d bytes are held for the %d that came, want %d at most", bb.held(), n, most)
		}
		if rand.IntN(2) == 0 {
			bb.join(s)
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i % 251)
			}
			if !bytes.Equal(bb.b, want) {
				t.Fatalf("a body of %d bytes is not what came", n)
			}
		}
		if used := s.bodies.used; used != held() {
			t.Fatalf("%d bytes are charged, %d held", used, held())
		}
		for len(bodies) > 10 {
			bodies[0].free(s)
			bodies = bodies[1:]
		}
		if s.bodyPool.idle > s.bodyPool.limit {
			t.Fatalf("%d bytes are idle, want %d at most", s.bodyPool.idle, s.bodyPool.limit)
		}
	}
	for _, bb := range bodies {
		bb.free(s)
	}
	if s.bodies.used != 0 || s.bodyPool.idle == 0 {
		t.Errorf("%d bytes still charged, %d idle", s.bodies.used, s.bodyPool.idle)
	}
}

// A body that came fast and then creeps has no more time left than any other.
func TestBodyPace(t *testing.T) {
	start := time.Now()
	tests := map[string]struct {
		stall time.Duration
		came  []int // bytes, one second after the other
		want  time.Duration
	}{
		"nothing":            {stall: time.Hour, want: 30 * time.Second},
		"a steady rate":      {stall: time.Hour, came: []int{bodyRate, bodyRate, bodyRate}, want: 33 * time.Second},
		"half the rate":      {stall: time.Hour, came: []int{bodyRate / 2, bodyRate / 2}, want: 31 * time.Second},
		"16 MiB, then creep": {stall: time.Hour, came: []int{16 << 20, 1, 1, 1}, want: 31 * time.Second},
		"silence":            {stall: 10 * time.Second, came: []int{16 << 20}, want: 11 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pace{limit: 30 * time.Second, stall: tt.stall}
			now := start
			at := p.next(now, 0)
			for _, n := range tt.came {
				now = now.Add(time.Second)
				at = p.next(now, n)
			}
			if got := at.Sub(start).Round(time.Millisecond); got != tt.want {
				t.Errorf("given up after %v, want %v", got, tt.want)
			}
		})
	}
}

func TestBudget(t *testing.T) {
	a, b := clientID{key: 1}, clientID{key: 2}
	const mib = 1 << 20
	budget := bodyBudget(Limits{Body: mib, BodyBudget: 16 * mib, ClientShare: 0.5})
	steps := []struct {
		what     string
		of       clientID
		n, whole int64
		want     refusal
	}{
		{"the share of one", a, 8 * mib, 8 * mib, granted},
		{"more", a, 1, 1, overShare},
		{"another", b, 6 * mib, 6 * mib, granted},
		{"large in the reserve", b, 1, smallBody + 1, spent},
		{"small in the reserve", b, smallBody, smallBody, granted},
		{"a release in it", clientID{}, mib, 0, granted},
		{"more than all", clientID{}, 2 * mib, 0, spent},
	}
	for _, s := range steps {
		if got := budget.take(s.of, s.n, s.whole); got != s.want {
			t.Fatalf("%s: %d, want %d", s.what, got, s.want)
		}
	}
	budget.give(a, 8*mib)
	budget.give(b, 6*mib+smallBody)
	budget.give(clientID{}, mib)
	if budget.used != 0 || len(budget.held) != 0 {
		t.Errorf("%d bytes and %d clients left", budget.used, len(budget.held))
	}
	small := bodyBudget(Limits{Body: mib, BodyBudget: mib, ClientShare: 0.1})
	if small.take(a, mib+bodyPiece, mib+bodyPiece) != granted {
		t.Error("a budget of one body does not hold it")
	}
}

// BenchmarkBody is what a body costs beside its reads: buffers, charges and copies.
func BenchmarkBody(b *testing.B) {
	chunk := make([]byte, netio.RawLimit)
	for _, size := range []int64{2 << 10, 40 << 10, 400 << 10, 4 << 20, 32 << 20} {
		b.Run(strconv.FormatInt(size>>10, 10)+" KiB", func(b *testing.B) {
			s := bodyServer(DefaultConfig().Limits)
			of := clientID{key: 1}
			var bb bodyBuffer
			b.ReportAllocs()
			b.SetBytes(size)
			for b.Loop() {
				for bb.size() < size {
					if len(bb.b) == cap(bb.b) && bb.grow(s, of, size) != granted {
						b.Fatal("refused")
					}
					n := min(len(chunk), cap(bb.b)-len(bb.b), int(size-bb.size()))
					bb.b = append(bb.b, chunk[:n]...)
				}
				bb.join(s)
				bb.free(s)
			}
		})
	}
}
