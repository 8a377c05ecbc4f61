package proxy

import (
	"net"
	"time"

	"xpyd/netio"
)

// untilClose writes an answer that ends with its connection: HTTP/1.0 knows no chunks. The
// head goes out with the first bytes after it.
type untilClose struct {
	conn *netio.Conn
	head []byte // still to be written
}

func (u *untilClose) Write(p []byte) (int, error) {
	if u.head == nil {
		return u.conn.Write(p)
	}
	first := append(u.head, p...)
	u.head = nil
	if _, err := u.conn.Write(first); err != nil {
		return 0, err
	}
	return len(p), nil
}

// answerUntilClose answers a client of HTTP/1.0 with what has no length. fasthttp would
// write chunks, so the answer is written here, inside the handler, and fasthttp writes none.
//
// Such a client takes any end of the connection for the end of the answer, but a reset. So
// the connection is one that resets as it closes, whatever closes it (the end of this
// process is such a thing too), until the whole answer has been written.
func (c *completion) answerUntilClose() {
	ctx, conn := c.ctx, c.conn
	c.ctx = nil
	ctx.SetConnectionClose()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {}) // fasthttp closes the connection after it
	err := conn.SetLinger(0)
	if err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(c.s.cfg.Timeouts.WriteStall + rearm))
		_, err = c.WriteTo(&untilClose{conn: conn, head: ctx.Response.Header.Header()})
	}
	_ = c.CloseWithError(err) // gives c back
	if err == nil {
		err = conn.SetLinger(-1)
	}
	if err != nil {
		_ = conn.Close()
	}
}
