// Package sse reads the events of a stream as a client does. Tools that judge the framing itself,
// byte by byte, read bytes.
package sse

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// longest is the most bytes that a line may have.
const longest = 16 << 20

// Reader reads a stream of events whose data is one line each, as vLLM's is.
type Reader struct{ lines *bufio.Scanner }

// NewReader reads from in.
func NewReader(in io.Reader) *Reader {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 8<<10), longest)
	lines.Split(whole)
	return &Reader{lines: lines}
}

// whole splits at the ends of lines. The beginning of a line at the stream's end is no line.
func whole(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, bytes.TrimSuffix(data[:i], []byte("\r")), nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// Next returns the data of the next event, which is valid until the next call. io.EOF is the
// stream's end. The caller knows whether it ended well.
func (r *Reader) Next() ([]byte, error) {
	for r.lines.Scan() {
		if data, ok := bytes.CutPrefix(r.lines.Bytes(), []byte("data: ")); ok {
			return data, nil
		}
	}
	if err := r.lines.Err(); err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	return nil, io.EOF
}

// Done reports whether an event is the last one.
func Done(data []byte) bool { return string(data) == "[DONE]" }
