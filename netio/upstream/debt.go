package upstream

import (
	"net/http"
	"sync"
	"time"
)

// debt is what a backend owes to requests with Owes. It is counted once when a request is written and once when it ends,
// so no event of a stream costs anything.
type debt struct {
	mu   sync.Mutex
	owed int
	// row is when the first of the requests was begun that have had no answer since then, in nanoseconds since the client
	// was born. 0: there is none. The row goes on when such a request is given up, because that settles nothing.
	row int64
}

// Debt is what a backend owes at a moment.
type Debt struct {
	Owed int // answers that it has not begun, and streams that have not ended
	// Since is since when nothing has come although somebody waits, or has given up. It is zero if the backend owes nothing.
	Since time.Time
}

// Debt tells what the backend owes. Its streams tell their progress to the second.
func (u *Client) Debt() Debt {
	u.debt.mu.Lock()
	defer u.debt.mu.Unlock()
	d := Debt{Owed: u.debt.owed}
	if u.debt.row != 0 && (d.Owed > 0 || u.progress.Load() < u.debt.row) {
		d.Since = u.born.Add(time.Duration(max(u.debt.row, u.progress.Load())))
	}
	return d
}

// Settle ends the row of requests without an answer if nobody waits any more, because something else has shown that the
// backend works.
func (u *Client) Settle() {
	u.debt.mu.Lock()
	defer u.debt.mu.Unlock()
	if u.debt.owed == 0 {
		u.debt.row = 0
	}
}

// lend notes that the backend owes an answer.
func (u *Client) lend() {
	u.debt.mu.Lock()
	defer u.debt.mu.Unlock()
	if u.debt.owed++; u.debt.owed == 1 && u.progress.Load() >= u.debt.row {
		u.debt.row = max(int64(time.Since(u.born)), 1)
	}
}

// repay notes that the backend owes one answer less. answered is false if the request was given up or broke off.
func (u *Client) repay(answered bool) {
	u.debt.mu.Lock()
	defer u.debt.mu.Unlock()
	if u.debt.owed--; u.debt.owed == 0 && answered {
		u.debt.row = 0
	}
}

// debtor counts an exchange in the Debt of its client, from the moment when it has a connection. The zero value owes nothing.
// The goroutine of the exchange owns it.
type debtor struct{ up *Client }

func (d *debtor) begin(u *Client, req *Request) {
	if req.Owes {
		d.up = u
		u.lend()
	}
}

// headCame ends the debt, unless a stream follows. The server in front of an engine that hangs may begin a stream, or refuse
// a request, but a whole answer is the engine's work.
func (d *debtor) headCame(x *Exchange) {
	if d.up == nil || x.Head.Status == http.StatusOK && x.IsEventStream() {
		return
	}
	if x.Head.Status == http.StatusOK {
		d.up.goesOn(time.Now())
	}
	d.end(true)
}

// end ends the debt, if there is one.
func (d *debtor) end(answered bool) {
	if d.up != nil {
		d.up.repay(answered)
		d.up = nil
	}
}
