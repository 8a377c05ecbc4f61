package members

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"xpyd/internal/files"
	"xpyd/router"
)

// saved is the state file.
type saved struct {
	Version int    `json:"version"`
	Edits   []Edit `json:"edits"`
}

// savedVersion is that of the form above. A process that does not know a file's version refuses it.
const savedVersion = 1

// load reads the state file. A file that does not exist has no edits.
func load(path string) ([]Edit, error) {
	text, err := files.NewReader(true).Bytes(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wrong("state_file: %q cannot be read: %v; give a file that this user may read and write", path, reason(err))
	}
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, wrong("state_file: %q holds no state of xpyd: %v; move it away to start without run-time changes", path, err)
	}
	if s.Version != savedVersion {
		return nil, wrong("state_file: %q has version %d, want %d; move it away to start without run-time changes", path, s.Version, savedVersion)
	}
	for _, e := range s.Edits {
		if _, err := router.BaseURL(e.URL); err != nil {
			return nil, wrong("state_file: %q: %q %v; correct it, or move it away to start without run-time changes", path, router.ShowURL(e.URL), err)
		}
		if err := e.check(); err != nil {
			return nil, wrong("state_file: %q: %s: %v; correct it, or move it away to start without run-time changes", path, e.URL, err)
		}
	}
	return s.Edits, nil
}

// CheckPlace refuses a folder in which a change could not be saved. It leaves nothing behind there.
func CheckPlace(path string) error {
	if path == "" {
		return nil
	}
	f, err := createBeside(path)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return nil // the configuration is right; save says what is wrong
	}
	if err != nil {
		return wrong("state_file: %q cannot be written: %v; give a path in a folder that exists and that this user may write to", path, reason(err))
	}
	_ = f.Close()
	_ = os.Remove(f.Name())
	return nil
}

// createBeside makes the file that replaces the state file once it is whole.
func createBeside(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
}

// reason returns an error of a file without the path, which is not always the one that the operator knows.
func reason(err error) error {
	if pe := new(fs.PathError); errors.As(err, &pe) {
		return pe.Err
	}
	if le := new(os.LinkError); errors.As(err, &le) {
		return le.Err
	}
	return err
}

// save replaces the state file as a whole, so that a reader or a crash finds the old or the new one.
func save(path string, edits []Edit) error {
	if err := replace(path, edits); err != nil {
		return fmt.Errorf("state_file: %q cannot be written: %w", path, reason(err))
	}
	if d, err := os.Open(filepath.Dir(path)); err == nil { // so that the new name survives a power cut
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}

func replace(path string, edits []Edit) error {
	text, err := json.MarshalIndent(saved{savedVersion, edits}, "", "  ")
	if err != nil {
		return err
	}
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
