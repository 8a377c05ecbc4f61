package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// readTime is how long the read of one file of the configuration may take.
const readTime = 10 * time.Second

// readSize is how many bytes of a file are read at most.
const readSize = 4 << 20

// Files reads the files of the configuration. A path may hang, on a mount whose server is gone or on
// a pipe without a writer. The goroutine that reads it then hangs too, but the process must still
// hear signals.
type Files struct {
	limit time.Duration // for each file
	// again is set where the files are not read for the first time, or are read by a successor. By
	// then the content of a pipe is gone. At the start a pipe may replace a file, as in --config
	// <(…).
	again bool

	root string            // "/", below which the memory limit is read; tests have another
	made map[string][]byte // texts in place of files, by their name

	mu   sync.Mutex
	hung map[string]bool // paths whose read has not returned
}

// NewFiles makes a reader. again is for a reload and for a successor, which find a pipe that stood
// in for a file empty.
func NewFiles(again bool) *Files {
	return &Files{limit: readTime, again: again, root: "/", made: map[string][]byte{}, hung: map[string]bool{}}
}

// Make gives the reader a text in place of a file of that name.
func (f *Files) Make(name string, text []byte) { f.made[name] = text }

// unreadError is about a file that was not read in time. That says nothing about its content, so
// another start may help.
type unreadError struct{ error }

func (e unreadError) Unwrap() error { return e.error }

// readFile is a file that has been read, or why it was not.
type readFile struct {
	text []byte
	mode fs.FileMode
	err  error // does not name the path
}

// opener returns a file of the configuration.
type opener func(path string) readFile

// read returns the file as soon as it is read, and at the latest when ctx ends or the time is over.
func (f *Files) read(ctx context.Context, path string) readFile {
	if text, ok := f.made[path]; ok {
		return readFile{text: text, mode: 0o600} // no other user can read it
	}
	if !f.begin(path) {
		return readFile{err: unreadError{errors.New("an earlier read of it still hangs; is its mount well?")}}
	}
	done := make(chan readFile, 1)
	go func() {
		r := readWhole(path, f.again)
		f.end(path)
		done <- r
	}()
	late := time.NewTimer(f.limit)
	defer late.Stop()
	select {
	case r := <-done:
		return r
	case <-late.C:
		return readFile{err: unreadError{fmt.Errorf("is not read after %s; is its mount well, or is it a pipe that nobody writes to?", f.limit)}}
	case <-ctx.Done():
		return readFile{err: unreadError{errors.New("told to stop before it was read")}}
	}
}

// begin returns false while an earlier read of the path hangs, because each further read would cost
// a thread.
func (f *Files) begin(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hung[path] {
		return false
	}
	f.hung[path] = true
	return true
}

func (f *Files) end(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.hung, path)
}

// openFile is the opener for callers that may wait.
func openFile(path string) readFile { return readWhole(path, false) }

// readWhole may hang. With regular it refuses everything but regular files before it opens them.
func readWhole(path string, regular bool) readFile {
	info, err := os.Stat(path)
	if err != nil {
		return readFile{err: fileError(err)}
	}
	if regular && !info.Mode().IsRegular() && !info.IsDir() {
		return readFile{err: errors.New("is no regular file, and so can be read at the start only; to reload or hand over, give a file")}
	}
	file, err := os.Open(path)
	if err != nil {
		return readFile{err: fileError(err)}
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, readSize+1))
	if err != nil {
		return readFile{err: fileError(err)}
	}
	if len(text) > readSize {
		return readFile{err: fmt.Errorf("is larger than %s", SizeText(readSize))}
	}
	return readFile{text: text, mode: info.Mode()}
}
