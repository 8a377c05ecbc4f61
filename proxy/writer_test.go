package proxy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"xpyd/intake/budget"
)

// A client that reads on after a write to it was cut must not find the next one, such as an
// error event, inside the chunk that was cut.
func TestNothingFollowsAChunkThatWasCut(t *testing.T) {
	event := bytes.Repeat([]byte{'a'}, maxWrite)
	chunk := strconv.FormatInt(maxWrite, 16) + "\r\n" + string(event) + "\r\n"
	var rest []byte
	for i := 0; i < 40 && len(rest) == 0; i++ { // on a busy machine the time may be over before a byte is written
		rest = bytes.ReplaceAll(readAfterACut(t, event), []byte(chunk), nil)
	}
	if len(rest) == 0 {
		t.Fatal("no chunk was cut: the test proves nothing")
	}
	if !bytes.HasPrefix([]byte(chunk), rest) {
		t.Errorf("%d bytes that end in %q stand behind the last whole chunk: want the beginning of one", len(rest), rest[max(0, len(rest)-40):])
	}
}

// readAfterACut is what a client reads that begins to read after a write of the event has timed out.
func readAfterACut(t *testing.T, event []byte) []byte {
	t.Helper()
	far, conn := accepted(t)
	// After the head, so that each write is a chunk of its own. The deadline is due to be moved.
	w := &clientWriter{chunked: true, n: 1, conn: conn, buffers: &budget.Buffers{}, stall: -time.Second + 50*time.Millisecond}
	var err error
	for err == nil {
		w.armed = time.Time{}
		err = w.write(event, time.Now())
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v: want a timeout", err)
	}
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(far)
		got <- b
	}()
	w.stall, w.armed = 10*time.Second, time.Time{} // of a client that reads again
	if err := w.write([]byte("data: {\"error\":{}}\n\n"), time.Now()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write after one that was cut: %v", err)
	}
	_ = conn.Close()
	return <-got
}
