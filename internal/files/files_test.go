package files

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := write("huge", "")
	if err := os.Truncate(huge, 3<<30); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path    string
		regular bool
		want    string
	}{
		{write("plain", "a\n"), true, "a\n"},
		{write("marked", "\ufeffa\n"), true, "a\n"},
		{filepath.Join(dir, "absent"), true, "no such file or directory"},
		{dir, true, "is a directory"},
		{huge, true, "is larger than 4MiB"},
		{"/dev/zero", false, "is larger than 4MiB"},
		{"/dev/zero", true, "is no regular file"},
		{pipe, true, "is no regular file"},
		{pipe, false, "is not read after 50ms"},
	} {
		r := NewReader(c.regular)
		if r.Limit = 50 * time.Millisecond; c.path == huge || c.path == "/dev/zero" {
			r.Limit = time.Minute
		}
		text, err := r.Bytes(c.path)
		got := string(text)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s, regular %t: %q, want %q", c.path, c.regular, got, c.want)
		}
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // the read that still waits may end
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Error(err)
	}
}
