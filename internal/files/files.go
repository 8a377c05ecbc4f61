// Package files reads files that an operator names. Such a path may be a pipe, a device without an end, or on a mount whose
// server is gone. None of them may hang or fill the process.
package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// Most is how many bytes of a file are read at most.
const Most = 4 << 20

// readTime is how long the read of one file may take.
const readTime = 10 * time.Second

// File is what a file held.
type File struct {
	Text     []byte // without a byte order mark
	Mode     fs.FileMode
	UID, GID int // of its owner
}

// Unread is about a file that was not read in time. That says nothing about its content, so another try may help.
type Unread struct{ Err error }

func (e Unread) Error() string { return e.Err.Error() }

func (e Unread) Unwrap() error { return e.Err }

// Reader reads files. The goroutine that reads a path that hangs then hangs too, but its caller does not. It is safe for
// concurrent use.
type Reader struct {
	Limit time.Duration // for each file
	// regular refuses all that is no regular file. A pipe can be read once only, as in --config <(…).
	regular bool

	mu   sync.Mutex
	hung map[string]bool // paths whose read has not returned
}

// NewReader makes a reader. regular is for files that are read more than once.
func NewReader(regular bool) *Reader {
	return &Reader{Limit: readTime, regular: regular, hung: map[string]bool{}}
}

// Bytes is Read for those that cannot be told to stop.
func (r *Reader) Bytes(path string) ([]byte, error) {
	f, err := r.Read(context.Background(), path)
	return f.Text, err
}

// Read returns the file as soon as it is read, and at the latest when ctx ends or the time is over. No error names the
// path.
func (r *Reader) Read(ctx context.Context, path string) (File, error) {
	if !r.begin(path) {
		return File{}, Unread{errors.New("an earlier read of it still hangs; is its mount well?")}
	}
	type result struct {
		file File
		err  error
	}
	done := make(chan result, 1)
	go func() {
		f, err := readWhole(path, r.regular)
		r.end(path)
		done <- result{f, err}
	}()
	late := time.NewTimer(r.Limit)
	defer late.Stop()
	select {
	case got := <-done:
		return got.file, got.err
	case <-late.C:
		return File{}, Unread{fmt.Errorf("is not read after %s; is its mount well, or is it a pipe that nobody writes to?", r.Limit)}
	case <-ctx.Done():
		return File{}, Unread{errors.New("told to stop before it was read")}
	}
}

// begin returns false while an earlier read of the path hangs, because each further read would cost
// a thread.
func (r *Reader) begin(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung[path] {
		return false
	}
	r.hung[path] = true
	return true
}

func (r *Reader) end(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hung, path)
}

// Hung returns how many reads have not returned.
func (r *Reader) Hung() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.hung)
}

// readWhole may hang. With regular it refuses everything but regular files before it opens them.
func readWhole(path string, regular bool) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, reason(err)
	}
	if regular && !info.Mode().IsRegular() && !info.IsDir() {
		return File{}, errors.New("is no regular file; give one, because it is read more than once")
	}
	file, err := os.Open(path)
	if err != nil {
		return File{}, reason(err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, Most+1))
	if err != nil {
		return File{}, reason(err)
	}
	if len(text) > Most {
		return File{}, fmt.Errorf("is larger than %dMiB", Most>>20)
	}
	f := File{Text: bytes.TrimPrefix(text, []byte("\ufeff")), Mode: info.Mode(), UID: -1, GID: -1}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		f.UID, f.GID = int(s.Uid), int(s.Gid)
	}
	return f, nil
}

// reason returns an error of a file without the path, which is not always the one that the operator knows.
func reason(err error) error {
	if pe := new(fs.PathError); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
