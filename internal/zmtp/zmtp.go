// Package zmtp speaks ZMTP 3.0 with the mechanism NULL: as much of ZeroMQ as it takes to subscribe to a publisher, to ask a
// router, and to be either of them for one peer at a time.
package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Socket types.
const (
	Sub    = "SUB"
	Pub    = "PUB"
	Dealer = "DEALER"
	Router = "ROUTER"
)

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	greetingBytes = 64
	maxFrames     = 16
)

// Conn is a connection after the handshake. One goroutine may receive while another sends.
type Conn struct {
	c      net.Conn
	r      *bufio.Reader
	most   int // bytes of a message
	buf    []byte
	frames [][]byte
	out    []byte
}

// Open makes the handshake with a peer that must have the given type. most bounds the bytes of a message. The caller
// sets deadlines on c, and closes it after an error too.
func Open(c net.Conn, own, peer string, most int) (*Conn, error) {
	z := &Conn{c: c, r: bufio.NewReaderSize(c, 64<<10), most: most}
	if err := z.greet(own == Pub || own == Router); err != nil {
		return nil, fmt.Errorf("ZMTP greeting: %w", err)
	}
	if _, err := c.Write(ready(own)); err != nil {
		return nil, fmt.Errorf("ZMTP handshake: %w", err)
	}
	flags, body, err := z.frame(nil)
	if err != nil {
		return nil, fmt.Errorf("ZMTP handshake: %w", err)
	}
	if got := socketType(body); flags&flagCommand == 0 || got != peer {
		return nil, fmt.Errorf("ZMTP handshake: the peer is no %s", peer)
	}
	return z, nil
}

func (z *Conn) greet(server bool) error {
	own := [greetingBytes]byte{0: 0xff, 9: 0x7f, 10: 3}
	copy(own[12:32], "NULL")
	if server {
		own[32] = 1
	}
	if _, err := z.c.Write(own[:]); err != nil {
		return err
	}
	var theirs [greetingBytes]byte
	if _, err := io.ReadFull(z.r, theirs[:]); err != nil {
		return err
	}
	switch {
	case theirs[0] != 0xff || theirs[9]&1 == 0 || theirs[10] < 3:
		return errors.New("the peer does not speak ZMTP 3")
	case string(theirs[12:17]) != "NULL\x00":
		return errors.New("the peer wants authentication")
	}
	return nil
}

// ready is the READY command.
func ready(own string) []byte {
	body := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, byte(len(own)))
	body = append(body, own...)
	if own == Dealer {
		body = append(body, "\x08Identity\x00\x00\x00\x00"...)
	}
	return append([]byte{flagCommand, byte(len(body))}, body...)
}

// socketType reads it out of a READY command, or returns "".
func socketType(body []byte) string {
	const name = "\x05READY"
	if len(body) < len(name) || string(body[:len(name)]) != name {
		return ""
	}
	for body = body[len(name):]; len(body) > 0; {
		n := int(body[0])
		if len(body) < 1+n+4 {
			return ""
		}
		key, rest := body[1:1+n], body[1+n:]
		size := uint64(binary.BigEndian.Uint32(rest))
		if size > uint64(len(rest)-4) {
			return ""
		}
		if string(key) == "Socket-Type" {
			return string(rest[4 : 4+size])
		}
		body = rest[4+size:]
	}
	return ""
}

// frame reads a frame and appends its body to dst, which may not grow above most.
func (z *Conn) frame(dst []byte) (flags byte, _ []byte, err error) {
	if flags, err = z.r.ReadByte(); err != nil {
		return 0, dst, err
	}
	head, n := [8]byte{}, 1
	if flags&flagLong != 0 {
		n = 8
	}
	if _, err := io.ReadFull(z.r, head[8-n:]); err != nil {
		return 0, dst, err
	}
	size := binary.BigEndian.Uint64(head[:])
	if size > uint64(z.most-len(dst)) {
		return 0, dst, fmt.Errorf("a message of more than %d bytes", z.most)
	}
	for size > 0 { // the room grows as bytes come, whatever the size says
		part := int(min(size, 64<<10))
		at := len(dst)
		dst = append(dst, make([]byte, part)...)
		if _, err := io.ReadFull(z.r, dst[at:]); err != nil {
			return 0, dst, err
		}
		size -= uint64(part)
	}
	return flags, dst, nil
}

// Receive reads a message. Its frames are valid until the next call.
func (z *Conn) Receive() ([][]byte, error) {
	var ends [maxFrames]int
	for n := 0; ; {
		if n == 0 {
			z.buf = z.buf[:0]
		}
		at := len(z.buf)
		flags, buf, err := z.frame(z.buf)
		z.buf = buf
		switch {
		case err != nil:
			return nil, err
		case flags&flagCommand != 0:
			if err := z.command(z.buf[at:]); err != nil {
				return nil, err
			}
			z.buf = z.buf[:at]
			continue
		case n == maxFrames:
			return nil, fmt.Errorf("a message of more than %d frames", maxFrames)
		}
		ends[n] = len(z.buf)
		if n++; flags&flagMore == 0 {
			z.frames = z.frames[:0]
			from := 0
			for _, end := range ends[:n] {
				z.frames = append(z.frames, z.buf[from:end])
				from = end
			}
			return z.frames, nil
		}
	}
}

// command answers a ping. Others are ignored.
func (z *Conn) command(body []byte) error {
	const ping = "\x04PING"
	if len(body) < len(ping)+2 || string(body[:len(ping)]) != ping {
		return nil
	}
	pong := append([]byte("\x04PONG"), body[len(ping)+2:]...)
	if len(pong) > 255 {
		return errors.New("a ping of more than 250 bytes")
	}
	_, err := z.c.Write(append([]byte{flagCommand, byte(len(pong))}, pong...))
	return err
}

// Send writes a message of these frames.
func (z *Conn) Send(frames ...[]byte) error {
	z.out = z.out[:0]
	for i, f := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		if len(f) < 256 {
			z.out = append(z.out, flags, byte(len(f)))
		} else {
			z.out = binary.BigEndian.AppendUint64(append(z.out, flags|flagLong), uint64(len(f)))
		}
		z.out = append(z.out, f...)
	}
	_, err := z.c.Write(z.out)
	return err
}

// Subscribe asks a publisher for all messages whose first frame begins with topic.
func (z *Conn) Subscribe(topic string) error { return z.Send(append([]byte{1}, topic...)) }
