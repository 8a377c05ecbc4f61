package upload

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"xpyd/intake/budget"
)

const largest = 1 << 20

func terms(budgetBytes int64) *Terms {
	return &Terms{Time: time.Minute, Stall: time.Minute, Largest: largest, Bodies: budget.NewBodies(budgetBytes, largest, 1)}
}

func gzipped(t *testing.T, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zstdOf compresses body in one call, and its frame says how long it is, or as a stream.
func zstdOf(t *testing.T, body []byte, stream bool, opts ...zstd.EOption) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	if !stream {
		return z.EncodeAll(body, nil)
	}
	var b bytes.Buffer
	z.Reset(&b)
	for len(body) > 0 {
		n := min(len(body), 32<<10)
		if _, err := z.Write(body[:n]); err != nil {
			t.Fatal(err)
		}
		body = body[n:]
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read reads a compressed body as it came, and returns what was made of it.
func read(t *testing.T, terms *Terms, coding Coding, wire []byte, length int64) ([]byte, Fault) {
	t.Helper()
	_, conn := accepted(t)
	var body budget.Body
	defer body.Free(terms.Bodies)
	f := terms.Read(Source{Stream: bytes.NewReader(wire), Conn: conn, Length: length, Coding: coding, Stop: &atomic.Bool{}}, &body)
	if body.Whole() != (f == None) {
		t.Errorf("fault %d, and the body is whole: %v", f, body.Whole())
	}
	return bytes.Clone(body.Bytes()), f
}

// words is text that compresses as prompts do.
func words(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString([]string{"prefill ", "decode ", "the ", "of ", "handle "}[r.IntN(5)])
	}
	return b.Bytes()[:n]
}

func TestInflate(t *testing.T) {
	for _, n := range []int{0, 1, 20 << 10, 300 << 10, largest} {
		text := words(n)
		skipped := append([]byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'}, zstdOf(t, text, true)...)
		half := n / 2
		for name, tt := range map[string]struct {
			coding Coding
			wire   []byte
		}{
			"gzip":               {Gzip, gzipped(t, text)},
			"two members":        {Gzip, append(gzipped(t, text[:half]), gzipped(t, text[half:])...)},
			"zeros behind":       {Gzip, append(gzipped(t, text), make([]byte, 9000)...)},
			"zeros in between":   {Gzip, append(append(gzipped(t, text[:half]), 0, 0), gzipped(t, text[half:])...)},
			"zstd":               {Zstd, zstdOf(t, text, false)},
			"zstd stream":        {Zstd, zstdOf(t, text, true)},
			"zstd best":          {Zstd, zstdOf(t, text, true, zstd.WithEncoderLevel(zstd.SpeedBestCompression))},
			"zstd, window 8 MiB": {Zstd, zstdOf(t, text, true, zstd.WithWindowSize(maxWindow))},
			"two frames":         {Zstd, append(zstdOf(t, text[:half], true), zstdOf(t, text[half:], true)...)},
			"a frame to skip":    {Zstd, skipped},
		} {
			if len(tt.wire) == 0 { // klauspost's encoder writes no frame for nothing
				continue
			}
			for _, length := range []int64{int64(len(tt.wire)), -1} {
				on := terms(64 << 20)
				got, f := read(t, on, tt.coding, tt.wire, length)
				if f != None || !bytes.Equal(got, text) {
					t.Errorf("%s of %d bytes, announced %d: fault %d, %d bytes", name, n, length, f, len(got))
				}
				if used := on.Bodies.InUse(); used != 0 {
					t.Errorf("%s of %d bytes: %v bytes are still charged", name, n, used)
				}
			}
		}
	}
}

// What is cut, damaged or something else is no body.
func TestMiscoded(t *testing.T) {
	text := words(100 << 10)
	for name, tt := range map[string]struct {
		coding Coding
		whole  []byte
	}{"gzip": {Gzip, gzipped(t, text)}, "zstd": {Zstd, zstdOf(t, text, false)}, "zstd stream": {Zstd, zstdOf(t, text, true, zstd.WithEncoderCRC(true))}} {
		damaged := bytes.Clone(tt.whole)
		damaged[len(damaged)/2] ^= 0x55
		for fault, wire := range map[string][]byte{
			"plain": text, "empty": nil, "short": tt.whole[:3], "cut": tt.whole[:len(tt.whole)/2], "cut at its end": tt.whole[:len(tt.whole)-1],
			"damaged": damaged, "something behind": append(bytes.Clone(tt.whole), "and more"...),
			"something behind zeros": append(bytes.Clone(tt.whole), "\x00\x00and more"...), "a header behind zeros": append(bytes.Clone(tt.whole), "\x00\x1f\x8b"...),
		} {
			on := terms(64 << 20)
			if _, f := read(t, on, tt.coding, wire, int64(len(wire))); f != Miscoded {
				t.Errorf("%s, %s: fault %d, want %d", name, fault, f, Miscoded)
			}
			if used := on.Bodies.InUse(); used != 0 {
				t.Errorf("%s, %s: %v bytes are still charged", name, fault, used)
			}
		}
	}
}

// A client that leaves in the middle has left, and has not sent a broken body.
func TestCutCompressedBodyIsADeparture(t *testing.T) {
	wire := gzipped(t, words(100<<10))
	if _, f := read(t, terms(64<<20), Gzip, wire[:len(wire)/2], int64(len(wire))); f != Gone {
		t.Errorf("fault %d, want %d", f, Gone)
	}
}

// A bomb holds no more than the largest body, and then nothing.
func TestBomb(t *testing.T) {
	zeros := make([]byte, 8*largest)
	for name, tt := range map[string]struct {
		coding Coding
		wire   []byte
		most   int64 // of its decoder
	}{
		"gzip": {Gzip, gzipped(t, zeros), gzipMemory},
		"zstd": {Zstd, zstdOf(t, zeros, true, zstd.WithWindowSize(256<<10)), zstdCost(256 << 10)},
	} {
		on := terms(256 << 20)
		_, conn := accepted(t)
		var body budget.Body
		spy := &spy{Reader: bytes.NewReader(tt.wire), bodies: on.Bodies}
		f := on.Read(Source{Stream: spy, Conn: conn, Length: int64(len(tt.wire)), Coding: tt.coding, Stop: &atomic.Bool{}}, &body)
		if f != TooLarge {
			t.Errorf("%s: fault %d, want %d", name, f, TooLarge)
		}
		held := int64(on.Bodies.InUse())
		if most := int64(largest + 256<<10); held > most {
			t.Errorf("%s: %d bytes are held, want %d at most", name, held, most)
		}
		if most := float64(largest+256<<10) + float64(tt.most); spy.most > most {
			t.Errorf("%s: %v bytes were charged, want %v at most", name, spy.most, most)
		}
		body.Free(on.Bodies)
		if used := on.Bodies.InUse(); used != 0 {
			t.Errorf("%s: %v bytes are still charged", name, used)
		}
	}
}

// spy notes what is charged while a body is read.
type spy struct {
	io.Reader
	bodies *budget.Bodies
	most   float64
}

func (s *spy) Read(p []byte) (int, error) {
	s.most = max(s.most, s.bodies.InUse())
	return s.Reader.Read(p)
}

// A budget that has no room for the decoder gives none, and a window beyond what the standard asks for
// is refused, in a first frame and in a later one.
func TestDecoderIsCharged(t *testing.T) {
	wide := zstdOf(t, words(1<<20), true, zstd.WithWindowSize(2*maxWindow))
	if _, f := read(t, terms(256<<20), Zstd, wide, -1); f != WideWindow {
		t.Errorf("a wide window: fault %d, want %d", f, WideWindow)
	}
	later := append(zstdOf(t, []byte("{}"), false), wide...)
	if _, f := read(t, terms(256<<20), Zstd, later, -1); f != WideWindow {
		t.Errorf("a wide window later: fault %d, want %d", f, WideWindow)
	}
	small := zstdOf(t, words(300<<10), true, zstd.WithWindowSize(maxWindow))
	if _, f := read(t, terms(8<<20), Zstd, small, -1); f != Spent {
		t.Errorf("a decoder of 9 MiB in a budget of 8: fault %d, want %d", f, Spent)
	}
}

// What a decoder takes is not more than what is charged for it.
func TestDecoderCost(t *testing.T) {
	text := []byte(strings.Repeat("once upon a time ", 8<<10))
	for _, window := range []int{1 << 10, 16 << 10, 128 << 10, 1 << 20, 2 << 20, maxWindow} {
		wire := zstdOf(t, text, true, zstd.WithWindowSize(window))
		if cost, took := zstdCost(uint64(window)), allocated(t, Zstd, wire); took > cost {
			t.Errorf("a window of %d: %d bytes allocated, %d charged", window, took, cost)
		}
	}
	if took := allocated(t, Gzip, gzipped(t, text)); took > gzipMemory {
		t.Errorf("gzip: %d bytes allocated, %d charged", took, int64(gzipMemory))
	}
}

// allocated returns what the read of a body allocates besides its own buffers, which the pool has from
// an earlier read.
func allocated(t *testing.T, coding Coding, wire []byte) int64 {
	t.Helper()
	on := terms(256 << 20)
	_, conn := accepted(t)
	least := int64(1 << 62)
	for range 5 { // other goroutines allocate too
		var body budget.Body
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f := on.Read(Source{Stream: bytes.NewReader(wire), Conn: conn, Length: int64(len(wire)), Coding: coding, Stop: &atomic.Bool{}}, &body)
		runtime.ReadMemStats(&after)
		if f != None {
			t.Fatalf("fault %d", f)
		}
		body.Free(on.Bodies)
		least = min(least, int64(after.TotalAlloc-before.TotalAlloc))
	}
	return least
}

// A plain body costs no allocation besides its buffers.
func TestPlainBodyAllocatesNothing(t *testing.T) {
	on := terms(64 << 20)
	_, conn := accepted(t)
	src, stop := bytes.NewReader(nil), &atomic.Bool{}
	text := words(8 << 10)
	if n := testing.AllocsPerRun(100, func() {
		var body budget.Body
		src.Reset(text)
		if f := on.Read(Source{Stream: src, Conn: conn, Length: int64(len(text)), Stop: stop}, &body); f != None {
			t.Fatalf("fault %d", f)
		}
		body.Free(on.Bodies)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// endless is frames that hold nothing, one after the other.
type endless struct {
	frame []byte
	at    int
	sent  int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.sent > 64*largest {
		return 0, io.ErrUnexpectedEOF // nobody has stopped it
	}
	n := copy(p, e.frame[e.at:])
	e.at, e.sent = (e.at+n)%len(e.frame), e.sent+n
	return n, nil
}

// A body without an announced length that inflates to nothing does not go on for ever.
func TestBodyOfNothingEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		coding Coding
		frame  []byte
	}{"gzip": {Gzip, gzipped(t, nil)}, "zstd": {Zstd, []byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'}}} {
		_, conn := accepted(t)
		on := terms(64 << 20)
		var body budget.Body
		wire := &endless{frame: tt.frame}
		if f := on.Read(Source{Stream: wire, Conn: conn, Length: -1, Coding: tt.coding, Stop: &atomic.Bool{}}, &body); f != TooLarge {
			t.Errorf("%s: fault %d after %d bytes, want %d", name, f, wire.sent, TooLarge)
		}
		if body.Free(on.Bodies); on.Bodies.InUse() != 0 {
			t.Errorf("%s: %v bytes are still charged", name, on.Bodies.InUse())
		}
	}
}
