package netio

// UntilClose writes an answer that ends with its connection, because HTTP/1.0 has no chunks. It sends
// the head together with the first bytes of the body.
type UntilClose struct {
	Conn *Conn
	Head []byte // nil after UntilClose has written it
}

// Write writes p, and before the first p the head.
func (u *UntilClose) Write(p []byte) (int, error) {
	if u.Head == nil {
		return u.Conn.Write(p)
	}
	first := append(u.Head, p...)
	u.Head = nil
	if _, err := u.Conn.Write(first); err != nil {
		return 0, err
	}
	return len(p), nil
}
