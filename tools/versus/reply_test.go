package versus

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"xpyd/kvparams"
)

// streamOf is what an engine sends for a stream with these stamps.
func streamOf(stamps ...int64) []byte {
	out := slices.Clone(streamHead)
	chunk, at := contentEvent()
	at += len(chunk) - eventSize - 2
	for _, s := range stamps {
		putStamp(chunk[at:], s)
		out = append(out, chunk...)
	}
	return append(out, streamTail...)
}

func TestEventsHaveTheirSize(t *testing.T) {
	chunk, at := contentEvent()
	if want := len("dc\r\n") + eventSize + len("\r\n"); len(chunk) != want {
		t.Errorf("chunk of %d bytes, want %d", len(chunk), want)
	}
	putStamp(chunk[at+len("dc\r\n"):], 1234567890123456789)
	if !strings.Contains(string(chunk), `"content":"@1234567890123456789`) {
		t.Errorf("the stamp is not where it belongs: %s", chunk)
	}
}

// However the bytes are cut, the same events come out.
func TestReplyReadsAStreamInAnyPieces(t *testing.T) {
	whole := streamOf(5, 7, 7, 90)
	for _, size := range []int{1, 2, 3, 100, 227, 1000, len(whole)} {
		var seen []int64
		r := reply{want: 4, onEvent: func(sent int64) { seen = append(seen, sent) }}
		for range 2 { // a connection is used again
			seen = nil
			r.reset()
			ended := 0
			for piece := range slices.Chunk(whole, size) {
				end, err := r.feed(piece)
				if err != nil {
					t.Fatalf("pieces of %d: %v", size, err)
				}
				if end {
					ended++
				}
			}
			if want := []int64{5, 7, 7, 90}; !slices.Equal(seen, want) || ended != 1 {
				t.Errorf("pieces of %d: stamps %v and %d ends, want %v and one", size, seen, ended, want)
			}
		}
	}
}

// A proxy may cut an event over two chunks, or put several into one.
func TestReplyReadsEventsAcrossChunks(t *testing.T) {
	_, body, _ := strings.Cut(string(streamOf(5, 7)), "\r\n\r\n")
	var events strings.Builder
	for line := range strings.SplitSeq(body, "\r\n") {
		if strings.HasPrefix(line, "data: ") {
			events.WriteString(line)
		}
	}
	half := events.Len() / 2
	stream := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
		string(chunked([]byte(events.String()[:half]))) + string(chunked([]byte(events.String()[half:]))) + "0\r\n\r\n"
	var seen []int64
	r := reply{want: 2, onEvent: func(sent int64) { seen = append(seen, sent) }}
	if end, err := r.feed([]byte(stream)); err != nil || !end || !slices.Equal(seen, []int64{5, 7}) {
		t.Errorf("stamps %v, end %v, error %v", seen, end, err)
	}
}

func TestReplyRefusesWhatIsNotWhole(t *testing.T) {
	good := string(streamOf(5))
	for _, tc := range []struct {
		name, bytes string
		want        error
	}{
		{"another status", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", errStatus},
		{"no [DONE]", strings.Replace(good, "data: [DONE]", "data: [GONE]", 1), errNoDone},
		{"a chunk too short", strings.Replace(good, "\r\ndc\r\n", "\r\ndb\r\n", 1), errFraming},
		{"a size that is none", strings.Replace(good, "\r\ndc\r\n", "\r\nxx\r\n", 1), errFraming},
		{"bytes behind the end", good + "x", errFraming},
		{"events in the wrong order", string(streamOf(7, 5)), errOrder},
		{"an event too few", string(streamOf()), errEvents},
		{"an event too many", string(streamOf(5, 7)), errEvents},
		{"another text", string(response("application/json", `{"choices":[]}`)), errText},
		{"a stamp that is none", strings.Replace(good, `"@0`, `"@x`, 1), errOrder},
	} {
		r := reply{want: 1, onEvent: func(int64) {}}
		if end, err := r.feed([]byte(tc.bytes)); !errors.Is(err, tc.want) {
			t.Errorf("%s: end %v, error %v, want %v", tc.name, end, err, tc.want)
		}
	}
	r := reply{onEvent: func(int64) {}}
	if end, err := r.feed([]byte(good[:len(good)-5])); end || err != nil {
		t.Errorf("a stream without its last chunk: end %v, error %v", end, err)
	}
}

// The handle must be one that a proxy takes, with the blocks of such a prompt.
func TestPrefillAnswerHasAHandle(t *testing.T) {
	for _, tc := range []struct{ size, blocks int }{{1, 1}, {64, 1}, {68, 2}, {4_000_000, 62_500}} {
		_, body, _ := strings.Cut(string(prefillAnswer(tc.size)), "\r\n\r\n")
		d, ok := kvparams.Lookup("nixl")
		if !ok {
			t.Fatal("no connector nixl")
		}
		a, err := d.ParseAnswer([]byte(body))
		if err != nil {
			t.Fatalf("%d bytes: %v", tc.size, err)
		}
		if a.Handle.None() || a.Handle.Blocks != tc.blocks {
			t.Errorf("%d bytes: handle of %d blocks, want %d", tc.size, a.Handle.Blocks, tc.blocks)
		}
	}
}
