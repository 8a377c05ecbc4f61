package versus

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/tools/versus/goload"
)

// Each of these answers was changed on its way, and either load must find it.
func TestWrongAnswersAreFound(t *testing.T) {
	whole, stream := okWhole, streamOf(5, 7, 9)
	chunk, _ := contentEvent()
	second := len(streamHead) + len(chunk)
	for _, tc := range []struct {
		name   string
		chat   bool
		answer []byte
		want   error
	}{
		{"status", false, bytes.Replace(whole, []byte("200 OK"), []byte("503 No"), 1), errStatus},
		{"text of a prefill engine", false, prefillAnswer(oneKiB), errText},
		{"text cut off", false, response("application/json", `{"choices":[]}`), errText},
		{"bytes behind the answer", false, append(slices.Clone(whole), 'x'), errFraming},
		{"stream for an answer", false, stream, errEvents},
		{"event left out", true, slices.Concat(stream[:second], stream[second+len(chunk):]), errEvents},
		{"event twice", true, slices.Concat(stream[:second], stream[second-len(chunk):]), errEvents},
		{"events out of order", true, streamOf(5, 9, 7), errOrder},
		{"no end", true, bytes.Replace(stream, []byte("[DONE]"), []byte("[WHAT]"), 1), errNoDone},
		{"broken chunk", true, bytes.Replace(stream, []byte("\r\ndc\r\n"), []byte("\r\nfc\r\n"), 1), errFraming},
	} {
		for _, kind := range (&Options{}).loads() {
			t.Run(tc.name+", "+kind, func(t *testing.T) {
				b := newBook(pacing{})
				e, err := goload.Serve(1, goload.Behaviour{Length: b.length, Answer: func(int, []byte, int) ([]byte, *goload.Stream) { return tc.answer, nil }})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				l := load{conns: 2, chat: tc.chat, body: oneKiB, window: 100 * time.Millisecond}
				if tc.chat {
					l.want = 3
				}
				for range 8 { // a machine that stalls spoils a window
					if _, err = runLoad(t.Context(), kind, e.Addrs()[0], l, func(bool) error { return nil }); !errors.Is(err, errNothing) {
						break
					}
				}
				if !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
			})
		}
	}
}

// A proxy that answers once and then never again would have the best figures.
func TestNothingWithinTheWindowIsAnError(t *testing.T) {
	for _, kind := range (&Options{}).loads() {
		t.Run(kind, func(t *testing.T) {
			stop := make(chan struct{})
			var asked atomic.Int64
			e, err := goload.Serve(1, goload.Behaviour{Length: newBook(pacing{}).length, Answer: func(int, []byte, int) ([]byte, *goload.Stream) {
				if asked.Add(1) > 1 {
					<-stop
				}
				return okWhole, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			defer close(stop)
			l := load{conns: 1, body: oneKiB, warm: 50 * time.Millisecond, window: 50 * time.Millisecond}
			_, err = runLoad(t.Context(), kind, e.Addrs()[0], l, func(end bool) error {
				for !end && asked.Load() < 2 && t.Context().Err() == nil {
					time.Sleep(time.Millisecond) // the first answer must not fall into the window
				}
				return nil
			})
			if !errors.Is(err, errNothing) {
				t.Errorf("error %v, want %v", err, errNothing)
			}
		})
	}
}
