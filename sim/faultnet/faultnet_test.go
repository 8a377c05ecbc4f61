package faultnet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"xpyd/sim/faultnet"
)

// wire is a relay with the test at both of its ends.
type wire struct {
	t      *testing.T
	relay  *faultnet.Relay
	target net.Listener
}

func newWire(t *testing.T, o faultnet.Options) *wire {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(20 * time.Second)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines, %d before the test", runtime.NumGoroutine(), before)
			}
			time.Sleep(time.Millisecond)
		}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	r, err := faultnet.Listen(ln.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return &wire{t: t, relay: r, target: ln}
}

// dial connects a client. Every use of the connection ends within 20 s.
func (w *wire) dial() *net.TCPConn {
	w.t.Helper()
	nc, err := net.Dial("tcp", w.relay.Addr())
	if err != nil {
		w.t.Fatal(err)
	}
	return w.owned(nc)
}

func (w *wire) owned(nc net.Conn) *net.TCPConn {
	w.t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return nc.(*net.TCPConn)
}

// pair returns a client's connection and the target's end of it.
func (w *wire) pair() (client, target *net.TCPConn) {
	w.t.Helper()
	client = w.dial()
	nc, err := w.target.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	return client, w.owned(nc)
}

func script(t *testing.T, text string) faultnet.Script {
	t.Helper()
	s, err := faultnet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ops returns what the relay says it did.
func (w *wire) ops() string {
	var all []string
	for _, i := range w.relay.Injected() {
		way := "up"
		if i.Down {
			way = "down"
		}
		all = append(all, fmt.Sprintf("%d %s %d %s", i.Conn, way, i.At, i.Op))
	}
	return strings.Join(all, "; ")
}

func (w *wire) write(nc net.Conn, text string) {
	w.t.Helper()
	if _, err := io.WriteString(nc, text); err != nil {
		w.t.Fatal(err)
	}
}

// expect reads len(text) bytes.
func (w *wire) expect(nc net.Conn, text string) {
	w.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(nc, got); err != nil || string(got) != text {
		w.t.Fatalf("read %q, %v, want %q\ninjected: %s", got[:n], err, text, w.ops())
	}
}

// expectEnd reads on. Nothing more may come, and the end must be this one.
func (w *wire) expectEnd(nc net.Conn, end error) {
	w.t.Helper()
	n, err := nc.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, end) {
		w.t.Fatalf("read %d bytes, %v, want the end %v\ninjected: %s", n, err, end, w.ops())
	}
}

// expectReset connects and expects RST, while connecting or right after it.
func (w *wire) expectReset() {
	w.t.Helper()
	nc, err := net.Dial("tcp", w.relay.Addr())
	if err == nil {
		w.expectEnd(w.owned(nc), syscall.ECONNRESET)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		w.t.Fatalf("dial: %v, want a reset", err)
	}
}

// expectSilence fails if a byte or an end comes within 50 ms.
func (w *wire) expectSilence(nc net.Conn) {
	w.t.Helper()
	_ = nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	w.expectEnd(nc, os.ErrDeadlineExceeded)
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
}

func TestPassesAllThatTCPDoes(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	client, target := w.pair()
	w.write(client, "question")
	w.expect(target, "question")
	_ = client.CloseWrite()
	w.expectEnd(target, io.EOF)
	w.write(target, "answer after the half-close")
	w.expect(client, "answer after the half-close")
	_ = target.Close()
	w.expectEnd(client, io.EOF)

	for _, fromTarget := range []bool{false, true} {
		client, target := w.pair()
		w.write(client, "q")
		w.expect(target, "q")
		from, to := client, target
		if fromTarget {
			from, to = target, client
		}
		_ = from.SetLinger(0)
		_ = from.Close()
		w.expectEnd(to, syscall.ECONNRESET)
	}
	if got := w.ops(); got != "" {
		t.Errorf("injected %s", got)
	}
}

func TestPassesManyBytes(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	client, target := w.pair()
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = target.Write(want)
		_ = target.Close()
	}()
	if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v, want %d as they were", len(got), err, len(want))
	}
}

// Both directions carry "abcdefgh". The op is on the way down.
func TestOpsAtAByte(t *testing.T) {
	for _, tc := range []struct {
		script string
		passes string // down
		end    error  // seen by both; nil if the connection goes on
		log    string
	}{
		{"down:rst@3", "abc", syscall.ECONNRESET, "1 down 3 rst@3"},
		{"down:rst@0", "", syscall.ECONNRESET, "1 down 0 rst@0"},
		{"down:rst@8", "abcdefgh", syscall.ECONNRESET, "1 down 8 rst@8"},
		{"down:rst@9", "abcdefgh", nil, ""},
		{"down:fin@3", "abc", io.EOF, "1 down 3 fin@3"},
		{"down:fin@0", "", io.EOF, "1 down 0 fin@0"},
		{"down:fin@5 down:rst@2", "ab", syscall.ECONNRESET, "1 down 2 rst@2"},
		{"down:slice=1 down:fin@5", "abcde", io.EOF, "1 down 0 slice=1; 1 down 5 fin@5"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			w := newWire(t, faultnet.Options{})
			w.relay.Next(script(t, tc.script))
			client, target := w.pair()
			w.write(client, "abcdefgh")
			w.expect(target, "abcdefgh")
			w.write(target, "abcdefgh")
			w.expect(client, tc.passes)
			if tc.end == nil {
				w.write(client, "on")
				w.expect(target, "on")
			} else {
				w.expectEnd(client, tc.end)
				w.expectEnd(target, tc.end)
			}
			if got := w.ops(); got != tc.log {
				t.Errorf("injected %q, want %q", got, tc.log)
			}
		})
	}
}

func TestOpsOnTheWayUp(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	w.relay.Next(script(t, "up:rst@3"), script(t, "up:fin@3"))
	for _, end := range []error{syscall.ECONNRESET, io.EOF} {
		client, target := w.pair()
		w.write(client, "abcdefgh")
		w.expect(target, "abc")
		w.expectEnd(target, end)
		w.expectEnd(client, end)
	}
	if got := w.ops(); got != "1 up 3 rst@3; 2 up 3 fin@3" {
		t.Errorf("injected %q", got)
	}
}

func TestCorruptFlipsOneBit(t *testing.T) {
	const text = "abcdefgh"
	run := func(seed uint64) string {
		w := newWire(t, faultnet.Options{Seed: seed})
		w.relay.Always(script(t, "down:corrupt@2 down:corrupt@7"))
		client, target := w.pair()
		w.write(target, text)
		got := make([]byte, len(text))
		if _, err := io.ReadFull(client, got); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			diff := got[i] ^ text[i]
			if one := diff != 0 && diff&(diff-1) == 0; one != (i == 2 || i == 7) {
				t.Errorf("byte %d: %q became %q", i, text[i], got[i])
			}
		}
		if all := w.relay.Injected(); len(all) != 2 || got[2]^all[0].Flip != text[2] || got[7]^all[1].Flip != text[7] {
			t.Errorf("%q, injected %+v", got, all)
		}
		return string(got)
	}
	seen := map[string]bool{}
	for seed := range uint64(20) {
		seen[run(seed)] = true
	}
	if first := run(3); first != run(3) {
		t.Errorf("one seed, two results")
	}
	if len(seen) < 4 {
		t.Errorf("20 seeds flip the same bits: %v", seen)
	}
}

func TestStallHoldsOneDirection(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	w.relay.Next(script(t, "down:stall@3"))
	client, target := w.pair()
	w.write(target, "abcdefgh")
	w.expect(client, "abc")
	w.write(client, "still")
	w.expect(target, "still")
	w.expectSilence(client)
	_ = client.CloseWrite() // passed on, and with it the end of the target
	w.expectEnd(target, io.EOF)
	_ = target.Close()
	w.expectEnd(client, io.EOF)
}

func TestStallPushesBack(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	w.relay.Next(script(t, "down:stall@3"))
	client, target := w.pair()
	w.write(target, "abc")
	w.expect(client, "abc")
	_ = target.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := target.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wrote %d bytes, %v, into a stall", n, err)
	}
}

func TestBlackholeHoldsBothDirections(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	w.relay.Next(script(t, "down:blackhole@3"))
	client, target := w.pair()
	w.write(target, "abcdefgh")
	w.expect(client, "abc")
	w.write(client, "lost")
	w.expectSilence(client)
	w.expectSilence(target)
	w.relay.ResetAll()
	w.expectEnd(client, syscall.ECONNRESET)
	w.expectEnd(target, syscall.ECONNRESET)
	if got := w.ops(); got != "1 down 3 blackhole@3; 0 up 0 reset" {
		t.Errorf("injected %q", got)
	}
}

func TestSlownessKeepsTheBytes(t *testing.T) {
	for text, least := range map[string]time.Duration{
		"down:delay=40ms":     40 * time.Millisecond,
		"down:slice=2,20ms":   60 * time.Millisecond, // the fourth piece comes after three pauses
		"down:rate=100":       60 * time.Millisecond, // 8 bytes, the last 2 of them after 6
		"down:slice=1":        0,
		"up:delay=1h":         0,
		"down:slice=3,1ms":    2 * time.Millisecond,
		"down:slice=1000,1ms": 0,
	} {
		t.Run(text, func(t *testing.T) {
			w := newWire(t, faultnet.Options{})
			w.relay.Next(script(t, text))
			client, target := w.pair()
			begin := time.Now()
			w.write(target, "abcdefgh")
			w.expect(client, "abcdefgh")
			if took := time.Since(begin); took < least {
				t.Errorf("took %v, want at least %v", took, least)
			}
		})
	}
}

func TestRefuseAtAcceptAndNoRead(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	w.relay.Next(script(t, "refuse"), script(t, "noread"))
	w.expectReset()
	silent := w.dial()
	w.write(silent, "hello")
	w.expectSilence(silent)
	client, target := w.pair() // the third has no script, and the first two never reached the target
	w.write(client, "third")
	w.expect(target, "third")
	if got := w.ops(); got != "1 up 0 refuse; 2 up 0 noread" {
		t.Errorf("injected %q", got)
	}
}

func TestRefuseClosesThePort(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	client, target := w.pair()
	for range 2 {
		for range 2 { // a second call changes nothing
			if err := w.relay.Refuse(true); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := net.Dial("tcp", w.relay.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial: %v", err)
		}
		w.write(client, "open still")
		w.expect(target, "open still")
		if err := w.relay.Refuse(false); err != nil {
			t.Fatal(err)
		}
		_, _ = w.pair()
	}
	if got := w.ops(); got != "0 up 0 refuse; 0 up 0 accept; 0 up 0 refuse; 0 up 0 accept" {
		t.Errorf("injected %q", got)
	}
}

func TestFreezeHoldsAll(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	client, target := w.pair()
	w.relay.Freeze()
	w.write(client, "up")
	w.write(target, "down")
	later := w.dial()
	w.write(later, "later")
	for _, nc := range []net.Conn{client, target, later} {
		w.expectSilence(nc)
	}
	_ = w.target.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := w.target.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("accept: %v: a frozen relay dialled", err)
	}
	_ = w.target.(*net.TCPListener).SetDeadline(time.Time{})
	w.relay.Thaw()
	w.expect(target, "up")
	w.expect(client, "down")
	nc, err := w.target.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w.expect(w.owned(nc), "later")
}

func TestRetargetMovesLaterConnections(t *testing.T) {
	w := newWire(t, faultnet.Options{})
	client, target := w.pair()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	w.relay.Retarget(other.Addr().String())
	moved := w.dial()
	nc, err := other.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w.write(moved, "moved")
	w.expect(w.owned(nc), "moved")
	w.write(client, "stayed")
	w.expect(target, "stayed")
	w.relay.Retarget("127.0.0.1:1")
	w.expectReset()
}

func TestNextGoesBeforeAlways(t *testing.T) {
	var logged atomic.Int64
	w := newWire(t, faultnet.Options{Log: func(faultnet.Injection) { logged.Add(1) }})
	w.relay.Always(script(t, "down:fin@1"))
	w.relay.Next(faultnet.Script{}, script(t, "down:fin@2"))
	for _, want := range []string{"", "ab", "a", "a"} {
		client, target := w.pair()
		w.write(target, "abc")
		if want == "" {
			w.expect(client, "abc")
			continue
		}
		w.expect(client, want)
		w.expectEnd(client, io.EOF)
	}
	if n := logged.Load(); n != 3 {
		t.Errorf("%d injections logged, want 3", n)
	}
}

func TestCloseEndsEveryState(t *testing.T) {
	for _, text := range []string{"", "noread", "down:stall@1", "down:blackhole@1", "down:delay=1h", "down:slice=1,1h", "down:rate=1", "down:fin@1"} {
		t.Run(text, func(t *testing.T) {
			w := newWire(t, faultnet.Options{})
			w.relay.Next(script(t, text))
			client := w.dial()
			if text != "noread" {
				nc, err := w.target.Accept()
				if err != nil {
					t.Fatal(err)
				}
				w.write(w.owned(nc), strings.Repeat("abc", 100)) // 5 minutes at a byte a second
			}
			if !strings.Contains(text, "delay") && text != "noread" {
				w.expect(client, "a")
			}
			if text == "" {
				w.relay.Freeze()
			}
			begin := time.Now()
			if err := w.relay.Close(); err != nil || time.Since(begin) > 20*time.Second {
				t.Errorf("close: %v after %v", err, time.Since(begin))
			}
			if _, err := net.Dial("tcp", w.relay.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dial after close: %v", err)
			}
		})
	}
}

func TestParse(t *testing.T) {
	const text = "refuse up:rst@100 up:fin@0 down:delay=20ms down:slice=1,1ms down:slice=7 down:rate=4096 down:stall@5 down:blackhole@6 down:corrupt@7"
	s := script(t, text)
	if got := s.String(); got != text {
		t.Errorf("%q, want %q", got, text)
	}
	if len(s.Up) != 3 || len(s.Down) != 7 || s.Down[1] != (faultnet.Op{Kind: faultnet.Slice, N: 1, D: time.Millisecond}) {
		t.Errorf("script %+v", s)
	}
	if s := script(t, "  "); len(s.Up)+len(s.Down) != 0 {
		t.Errorf("script %+v", s)
	}
	for _, bad := range []string{
		"rst@1", "down:refuse", "up:noread", "side:rst@1", "down:rst", "down:rst=1", "down:rst@x", "down:rst@-1", "down:delay@3",
		"down:delay", "down:delay=0s", "down:delay=-1s", "down:delay=5", "down:slice", "down:slice=0", "down:slice=1,x", "down:rate=0", "down:rate=fast", "down:bang@1", "refuse=1", "down:", ":",
	} {
		if s, err := faultnet.Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %q, want an error", bad, s)
		}
	}
}

func TestRandomIsTheSeeds(t *testing.T) {
	draw := func(seed uint64) (all []string) {
		r := rand.New(rand.NewPCG(seed, 0))
		for range 300 {
			s := faultnet.Random(r)
			if again := script(t, s.String()); again.String() != s.String() {
				t.Fatalf("%q is read as %q", s, again)
			}
			all = append(all, s.String())
		}
		return all
	}
	one := strings.Join(draw(1), "\n")
	if one != strings.Join(draw(1), "\n") || one == strings.Join(draw(2), "\n") {
		t.Error("the scripts are not a function of the seed")
	}
	for _, kind := range []string{"delay=", "slice=", "rate=", "rst@", "fin@", "stall@", "blackhole@", "corrupt@", "refuse", "noread"} {
		if !strings.Contains(one, kind) {
			t.Errorf("300 scripts without %s", kind)
		}
	}
}
