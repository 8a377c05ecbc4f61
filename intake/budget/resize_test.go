package budget

import "testing"

// What is held when a budget shrinks stays held, and nothing more is given until enough is given back.
func TestResize(t *testing.T) {
	b := New(100, 1)
	of := Client{Key: 1}
	if b.Take(of, 80, 80) != Granted {
		t.Fatal("refused")
	}
	b.Resize(50, 1)
	if b.Take(of, 1, 1) != Spent {
		t.Error("a budget that holds more than its limit gives")
	}
	b.Give(of, 40)
	if b.Take(of, 10, 10) != Granted || b.Take(of, 1, 1) != Spent {
		t.Error("not the new limit")
	}
	b.Resize(100, 0.5)
	if b.Take(of, 1, 1) != OverShare || b.Take(Client{Key: 2}, 1, 1) != Granted {
		t.Error("not the new share")
	}
	if b.Give(of, 50); b.InUse() != 1 {
		t.Errorf("%v in use", b.InUse())
	}
}

func TestBodiesResize(t *testing.T) {
	b := NewBodies(64<<20, 1<<20, 1)
	buffer := b.pool.get(pieceSize)
	b.pool.put(buffer)
	if b.pool.idle != pieceSize {
		t.Fatalf("%d idle bytes", b.pool.idle)
	}
	b.Resize(1<<20, 1<<20, 1)
	if b.pool.idle != 0 {
		t.Errorf("%d idle bytes are kept", b.pool.idle)
	}
	if b.limit != 1<<20+pieceSize || b.large != b.limit || b.share != b.limit {
		t.Errorf("limit %d, large %d, share %d: no room for one body", b.limit, b.large, b.share)
	}
}

// A limit that comes and goes is that of all that runs, whenever it began.
func TestCountsWithALimitThatChanges(t *testing.T) {
	c, id := NewCounts(0), Client{Key: 1}
	c.Begin(id)
	c.SetLimit(2)
	if !c.Begin(id) || c.Begin(id) {
		t.Error("not the limit of 2")
	}
	c.End(id) // the one from before the limit
	if !c.Begin(id) || c.Begin(id) {
		t.Error("not the limit of 2 after one has ended")
	}
	c.SetLimit(0)
	c.End(id)
	for range 2 {
		if !c.Begin(id) {
			t.Error("a limit of 0 is one")
		}
	}
	c.SetLimit(3)
	if c.Begin(id) {
		t.Error("a request is forgotten that runs")
	}
	for range 3 {
		c.End(id)
	}
	if len(c.n) > 0 {
		t.Errorf("%v counted after the end", c.n)
	}
}

// Whoever cannot be told from others has no limit, and is not counted.
func TestCountsOfNobody(t *testing.T) {
	c := NewCounts(1)
	for range 2 {
		if !c.Begin(Client{}) {
			t.Error("refused")
		}
	}
	if len(c.n) > 0 {
		t.Errorf("%v counted", c.n)
	}
}
