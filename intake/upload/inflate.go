package upload

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"xpyd/intake/budget"
	"xpyd/netio"
)

// Coding is how a body is compressed.
type Coding uint8

// Codings.
const (
	Identity Coding = iota // it is not
	Gzip
	Zstd
)

// CodingOf reads a Content-Encoding. An absent one is empty.
func CodingOf(value []byte) (c Coding, known bool) {
	switch {
	case len(value) == 0, netio.EqualFold(value, "identity"):
		return Identity, true
	case netio.EqualFold(value, "gzip"), netio.EqualFold(value, "x-gzip"):
		return Gzip, true
	case netio.EqualFold(value, "zstd"):
		return Zstd, true
	}
	return 0, false
}

const (
	gzipMemory = 48 << 10 // of a decoder, in bytes: its window of 32 KiB, its tables, its buffer
	zstdMemory = 64 << 10 // the same without what depends on the window
	zstdBlock  = 128 << 10
	// maxWindow is the largest window of zstd that a peer has to take (RFC 9659).
	maxWindow = 8 << 20
)

// inflate reads a compressed body. The memory of its decoder is charged as well, as long as it lasts:
// a few bytes of zstd can ask for megabytes.
func (t *Terms) inflate(w *wire, body *budget.Body) Fault {
	var held budget.Charge
	defer func() { held.Lower(0) }()
	var err error
	if w.src.Coding == Gzip {
		if r := held.Raise(t.Bodies.Budget, w.src.Client, gzipMemory); r != budget.Granted {
			return refused(r)
		}
		z := members{in: bufio.NewReaderSize(w, 4<<10)}
		if z.one, err = gzip.NewReader(z.in); err != nil { // it reads the header
			return w.end(miscoded(err))
		}
		return t.fill(w, &z, -1, body)
	}
	head, window, err := zstdHead(w)
	if err != nil {
		return w.end(miscoded(err))
	}
	if r := held.Raise(t.Bodies.Budget, w.src.Client, zstdCost(window)); r != budget.Granted {
		return refused(r)
	}
	z, err := zstd.NewReader(io.MultiReader(bytes.NewReader(head), w), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(window)) // of further frames too
	if err != nil {
		return Miscoded
	}
	defer z.Close()
	return t.fill(w, z, -1, body)
}

// members inflates the members of a gzip file. As gzip itself does, it passes over zeros behind a member, with which some
// writers fill their last block.
type members struct {
	in  *bufio.Reader
	one *gzip.Reader
}

func (z *members) Read(p []byte) (int, error) {
	z.one.Multistream(false)
	n, err := z.one.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	for c := byte(0); c == 0; {
		if c, err = z.in.ReadByte(); err != nil {
			return n, err
		}
	}
	_ = z.in.UnreadByte() // it has just been read
	return n, miscoded(z.one.Reset(z.in))
}

// miscoded keeps the end of an empty or a short body from being taken for the end of a whole one.
func miscoded(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// zstdHead reads the header of the first frame, and returns it with the window that it asks for. Where
// the header does not tell, which is so before a frame to skip, the window is the largest.
func zstdHead(w *wire) (head []byte, window uint64, err error) {
	head = make([]byte, zstd.HeaderMaxSize)
	n, err := io.ReadFull(w, head)
	head = head[:n]
	if err != nil && (n == 0 || !errors.Is(err, io.ErrUnexpectedEOF)) {
		return nil, 0, err
	}
	var h zstd.Header
	if err := h.Decode(head); err != nil {
		return nil, 0, err
	}
	window = max(h.WindowSize, zstd.MinWindowSize)
	switch {
	case h.Skippable:
		window = maxWindow
	case h.SingleSegment:
		window = max(h.FrameContentSize, zstd.MinWindowSize)
	}
	if window > maxWindow {
		return nil, 0, zstd.ErrWindowSizeExceeded
	}
	return head, window, nil
}

// zstdCost is what a decoder with the window holds at most, in bytes.
func zstdCost(window uint64) int64 {
	n := int64(window)
	return zstdMemory + min(2*n, n+1<<20) + 2*min(n, zstdBlock)
}

// windowTooWide reports that a frame asks for more memory than the decoder may have.
func windowTooWide(err error) bool {
	return errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded)
}
