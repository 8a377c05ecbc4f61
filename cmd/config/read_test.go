package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is far longer than anything here takes on a busy machine.
const patience = 20 * time.Second

// fifo makes a named pipe without a writer.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// feed writes the text to the pipe and closes it.
func feed(t *testing.T, pipe, text string) {
	t.Helper()
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := f.WriteString(text); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// eventually polls until another goroutine has made ok true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s after %s", what, patience)
		}
	}
}

// Each read has a time limit, and a path that hangs is not read again meanwhile.
func TestReadOfAFileThatHangs(t *testing.T) {
	pipe := fifo(t)
	files := NewFiles(false)
	files.reader.Limit = 20 * time.Millisecond
	for _, want := range []string{"is not read after 20ms; ", "an earlier read of it still hangs; "} {
		r := files.read(t.Context(), pipe)
		if r.err == nil || !strings.HasPrefix(r.err.Error(), want) {
			t.Errorf("%v, want %q", r.err, want)
		}
	}
	feed(t, pipe, "late")
	eventually(t, "let go", func() bool { return files.reader.Hung() == 0 })
	go feed(t, pipe, "again")
	files.reader.Limit = patience
	if r := files.read(t.Context(), pipe); r.err != nil || string(r.Text) != "again" {
		t.Errorf("%q, %v", r.Text, r.err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	large := writeFile(t, "large.yaml", strings.Repeat("#", (4<<20)+1), 0o600)
	_, err := load(t, []string{"--config", large}, nil)
	checkUsage(t, err, "config: "+large+": is larger than 4MiB")
	_, err = load(t, append([]string{"--api-key-file", large}, decodeFlag...), nil)
	checkUsage(t, err, `config: api_key_file: "`+large+`" cannot be read: is larger than 4MiB; give a file that this user may read (flag --api-key-file, XPYD_API_KEY_FILE)`)
	dir := t.TempDir()
	_, err = load(t, []string{"--config", dir}, nil)
	checkUsage(t, err, "config: "+dir+": is a directory")
	_, err = load(t, []string{"--config", "/dev/zero"}, nil)
	checkUsage(t, err, "config: /dev/zero: is larger than 4MiB")
}
