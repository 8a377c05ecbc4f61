package reload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// proxy is the proxy under reloads, in a process of its own.
type proxy struct {
	*process.Process
	file        string       // its configuration
	late        atomic.Int64 // timeouts that the log complained of
	addr, admin string
	findings    *findings

	serving  chan []byte // the line that says where it serves
	reloaded chan []byte // lines of reloads, good or bad
}

// reloadedLine is what the proxy says about a reload.
type reloadedLine struct{ Joined, Left int }

func startProxy(ctx context.Context, command []string, dir string, settings map[string]any, f *findings) (*proxy, error) {
	p := &proxy{file: filepath.Join(dir, "xpyd.json"), findings: f, serving: make(chan []byte, 1), reloaded: make(chan []byte, 1)}
	if err := p.configure(settings); err != nil {
		return nil, err
	}
	var err error
	p.Process, err = process.StartFollowed(filepath.Join(dir, "xpyd.log"), p.line, command[0], append(command[1:len(command):len(command)], "--config", p.file)...)
	if err != nil {
		return nil, err
	}
	var where struct{ Listen, Admin string }
	select {
	case line := <-p.serving:
		err = json.Unmarshal(line, &where)
	case <-p.Ended():
		err = errors.New("the proxy has ended instead of serving")
	case <-time.After(startBound):
		err = fmt.Errorf("the proxy does not serve after %v", startBound)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, p.said(), p.End(stopBound))
	}
	p.addr, p.admin = where.Listen, where.Admin
	return p, nil
}

// said returns an error if the log has a fault.
func (p *proxy) said() error {
	if all := p.findings.all(); len(all) > 0 {
		return errors.New(all[0])
	}
	return nil
}

func (p *proxy) configure(settings map[string]any) error {
	text, err := json.Marshal(settings)
	if err != nil {
		panic("BUG: settings that are no JSON: " + err.Error())
	}
	if err := os.WriteFile(p.file+".new", text, 0o600); err != nil {
		return fmt.Errorf("write the proxy's configuration: %w", err)
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		return fmt.Errorf("write the proxy's configuration: %w", err)
	}
	return nil
}

// line reads one line of the log. No engine fails, so a line of level warn or above is a fault.
// Timeouts are caused by the machine, which runs a thousand engines beside the proxy, and are only
// counted. What a client sees of them is still a fault.
func (p *proxy) line(line []byte) {
	switch {
	case bytes.Contains(line, []byte(`"message":"serving"`)):
		p.serving <- line
	case bytes.Contains(line, []byte(`"message":"pools reloaded"`)), bytes.Contains(line, []byte(`"message":"reload failed`)):
		p.reloaded <- line
	case bytes.Contains(line, []byte(`"message":"questionable setting"`)): // some policies with the run's own prefix_memory cause this
	case bytes.Contains(line, []byte("i/o timeout")), bytes.Contains(line, []byte("deadline exceeded")):
		p.late.Add(1)
	case !bytes.Contains(line, []byte(`"level":"info"`)) && !bytes.Contains(line, []byte(`"level":"debug"`)):
		var said struct{ Message string }
		_ = json.Unmarshal(line, &said) // a line that is not JSON has no message
		p.findings.add("complaint in the log, "+said.Message, "%s", bytes.TrimSpace(line))
	}
}

// reload puts settings in force and returns what the proxy says about it.
func (p *proxy) reload(ctx context.Context, settings map[string]any) (said reloadedLine, err error) {
	if err := p.configure(settings); err != nil {
		return said, err
	}
	if err := p.Signal(syscall.SIGHUP); err != nil {
		return said, err
	}
	select {
	case line := <-p.reloaded:
		if bytes.Contains(line, []byte(`"message":"reload failed`)) {
			return said, fmt.Errorf("the proxy refuses the configuration: %s", bytes.TrimSpace(line))
		}
		if err := json.Unmarshal(line, &said); err != nil {
			return said, fmt.Errorf("read %q: %w", line, err)
		}
		return said, nil
	case <-p.Ended():
		return said, errors.New("the proxy has ended")
	case <-time.After(reloadWait):
		return said, fmt.Errorf("the proxy has not reloaded after %v", reloadWait)
	case <-ctx.Done():
		return said, ctx.Err()
	}
}

// reloadWait is far longer than a reload of thousands of backends takes on a busy machine.
const reloadWait = 20 * time.Second

// These are bounds of the proxy's process: until it serves, and until it has ended.
const (
	startBound = 15 * time.Second
	stopBound  = 30 * time.Second
)
