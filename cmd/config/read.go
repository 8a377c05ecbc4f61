package config

import (
	"context"

	"xpyd/internal/files"
)

// Files reads the files of the configuration. The process must hear signals meanwhile.
type Files struct {
	reader *files.Reader
	root   string            // "/", below which the memory limit is read; tests have another
	made   map[string][]byte // texts in place of files, by their name
}

// NewFiles makes a reader. again is for a reload and for a successor, which find a pipe that stood
// in for a file empty. At the start a pipe may replace a file, as in --config <(…).
func NewFiles(again bool) *Files {
	return &Files{reader: files.NewReader(again), root: "/", made: map[string][]byte{}}
}

// Make gives the reader a text in place of a file of that name.
func (f *Files) Make(name string, text []byte) { f.made[name] = text }

// unreadError is about a file that was not read in time.
type unreadError = files.Unread

// readFile is a file that has been read, or why it was not.
type readFile struct {
	files.File
	err error // does not name the path
}

// opener returns a file of the configuration.
type opener func(path string) readFile

// read returns the file as soon as it is read, and at the latest when ctx ends or the time is over.
func (f *Files) read(ctx context.Context, path string) readFile {
	if text, ok := f.made[path]; ok {
		return readFile{File: files.File{Text: text, Mode: 0o600}} // no other user can read it
	}
	file, err := f.reader.Read(ctx, path)
	return readFile{file, err}
}

// openFile is the opener for callers that may wait.
func openFile(path string) readFile { return NewFiles(false).read(context.Background(), path) }
