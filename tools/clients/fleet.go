package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startTime = 30 * time.Second // for one process to serve
	stopTime  = 15 * time.Second
	apiKey    = "sk-clients"
	// heldStreams is limits.client_in_flight of a fleet with a key.
	heldStreams = 20
)

// fleet is two prefill and two decode engines, simulated, and xpyd before them, each in a
// process of its own on loopback ports that they chose.
type fleet struct {
	prefill, decode []string // base URLs
	url, admin      string   // of xpyd
	victim          *process // another xpyd before the same engines, for killing; nil without a key
	victimURL       string
	processes       []*process // in the order of their start
	dir             string
}

// process is a child that serves until it is told to stop.
type process struct {
	name  string
	cmd   *exec.Cmd
	lines chan string // of its output, until the first that says where it serves
	ended chan error
}

func startFleet(ctx context.Context, xpyd, dir string, key bool) (*fleet, error) {
	f := &fleet{dir: dir}
	for _, role := range []string{"prefill", "decode"} {
		for i := range 2 {
			url, err := f.startEngine(ctx, xpyd, role, fmt.Sprintf("%s-%d", role, i))
			if err != nil {
				return f, err
			}
			if role == "prefill" {
				f.prefill = append(f.prefill, url)
			} else {
				f.decode = append(f.decode, url)
			}
		}
	}
	var err error
	if f.url, f.admin, _, err = f.startProxy(ctx, xpyd, "xpyd", key); err != nil || !key {
		return f, err
	}
	f.victimURL, _, f.victim, err = f.startProxy(ctx, xpyd, "victim", key)
	return f, err
}

// startEngine starts ./xpyd sim and returns the URL that it tells.
func (f *fleet) startEngine(ctx context.Context, xpyd, role, name string) (string, error) {
	p, err := f.spawn(xpyd, name, "sim", "--role", role, "--name", name, "--listen", "127.0.0.1:0", "--tool-call-parser", "hermes")
	if err != nil {
		return "", err
	}
	line, err := p.await(ctx, " ready: ")
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(line, " ready: ")
	url, _, _ := strings.Cut(rest, ",")
	return url, nil
}

// startProxy starts ./xpyd serve and waits until it is ready.
func (f *fleet) startProxy(ctx context.Context, xpyd, name string, key bool) (url, admin string, p *process, err error) {
	args := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json",
		"--prefill", strings.Join(f.prefill, ","), "--decode", strings.Join(f.decode, ",")}
	if key {
		config := filepath.Join(f.dir, "xpyd.yaml")
		if err := os.WriteFile(config, fmt.Appendf(nil, "limits:\n  client_in_flight: %d\n", heldStreams), 0o600); err != nil {
			return "", "", nil, fmt.Errorf("write the configuration: %w", err)
		}
		args = append(args, "--api-key", apiKey, "--config", config)
	}
	if p, err = f.spawn(xpyd, name, args...); err != nil {
		return "", "", nil, err
	}
	line, err := p.await(ctx, `"message":"serving"`)
	if err != nil {
		return "", "", nil, err
	}
	var said struct{ Listen, Admin string }
	if err := json.Unmarshal([]byte(line), &said); err != nil {
		return "", "", nil, fmt.Errorf("read where %s serves: %w", name, err)
	}
	url, admin = "http://"+said.Listen, "http://"+said.Admin
	return url, admin, p, awaitReady(ctx, url)
}

// spawn starts a process whose output goes to a log, and to await until that has its line.
func (f *fleet) spawn(program, name string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(program, args...), lines: make(chan string, 64), ended: make(chan error, 1)}
	log, err := os.Create(filepath.Join(f.dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("make the log of %s: %w", name, err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for %s: %w", name, err)
	}
	p.cmd.Stdout, p.cmd.Stderr = write, write
	// Its own group: Ctrl-C is for this process, which stops the others. The kernel does if
	// this process is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = errors.Join(p.cmd.Start(), write.Close())
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	f.processes = append(f.processes, p)
	go p.copy(read, log)
	return p, nil
}

// copy brings the output to the log until the process ends.
func (p *process) copy(read io.ReadCloser, log io.WriteCloser) {
	in := bufio.NewReader(read)
	var failed error
	for {
		line, err := in.ReadString('\n')
		_, wrong := io.WriteString(log, line)
		failed = errors.Join(failed, wrong)
		select {
		case p.lines <- line:
		default: // await has what it waited for
		}
		if err != nil {
			break
		}
	}
	close(p.lines)
	p.ended <- errors.Join(p.cmd.Wait(), failed, log.Close(), read.Close())
}

// await returns the first line that holds text.
func (p *process) await(ctx context.Context, text string) (string, error) {
	late := time.After(startTime)
	last := "it said nothing"
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return "", fmt.Errorf("%s ended: %s", p.name, last)
			}
			if last = strings.TrimSpace(line); strings.Contains(line, text) {
				return last, nil
			}
		case <-late:
			return "", fmt.Errorf("%s does not serve after %v: %s", p.name, startTime, last)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		_, err := get(ctx, url+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", url, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends all processes, xpyd first. Each must end with status 0.
func (f *fleet) stop() (failures []string) {
	for i := len(f.processes) - 1; i >= 0; i-- {
		p := f.processes[i]
		err := p.stop()
		if p == f.victim {
			continue // it has been killed, if its client got so far
		}
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	return failures
}

func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("end %s: %w", p.name, err)
		}
		return nil
	case <-time.After(stopTime):
	}
	_ = p.cmd.Process.Kill() // as above
	return fmt.Errorf("end %s: %w", p.name, errors.Join(fmt.Errorf("still there %v after TERM", stopTime), <-p.ended))
}

// get returns the body of a 200.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s: %.200s", url, resp.Status, bytes.TrimSpace(body))
	}
	return body, nil
}
