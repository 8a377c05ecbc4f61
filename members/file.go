package members

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wrong("state_file: %v; give a file that this user may read and write", err)
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

// save replaces the state file as a whole, so that a reader or a crash finds the old or the new one.
func save(path string, edits []Edit) (err error) {
	text, err := json.MarshalIndent(saved{savedVersion, edits}, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("state_file: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("state_file: %w", err)
	}
	if d, err := os.Open(dir); err == nil { // so that the new name survives a power cut
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}
