package sse

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestNext(t *testing.T) {
	broken := errors.New("reset")
	long := strings.Repeat("x", 100<<10)
	for _, tc := range []struct {
		name string
		in   io.Reader
		want []string
		err  error
	}{
		{"events", strings.NewReader("data: a\n\ndata: [DONE]\n\n"), []string{"a", "[DONE]"}, io.EOF},
		{"CRLF and comments", strings.NewReader(": hello\r\n\r\ndata: a\r\n\r\nevent: b\r\n"), []string{"a"}, io.EOF},
		{"byte by byte", iotest.OneByteReader(strings.NewReader("data: a\n\ndata: b\n\n")), []string{"a", "b"}, io.EOF},
		{"cut in an event", strings.NewReader("data: a\n\ndata: b"), []string{"a"}, io.EOF},
		{"broken off", io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken)), []string{"a"}, broken},
		{"a long one", strings.NewReader("data: " + long + "\n\n"), []string{long}, io.EOF},
		{"nothing", strings.NewReader(""), nil, io.EOF},
	} {
		r := NewReader(tc.in)
		var got []string
		data, err := r.Next()
		for ; err == nil; data, err = r.Next() {
			got = append(got, string(data))
		}
		if !slices.Equal(got, tc.want) || !errors.Is(err, tc.err) {
			t.Errorf("%s: %.100q, error %v, want %.100q, %v", tc.name, got, err, tc.want, tc.err)
		}
	}
	if !Done([]byte("[DONE]")) || Done([]byte(`{"a":"[DONE]"}`)) {
		t.Error("what is the last event")
	}
}
