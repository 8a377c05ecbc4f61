package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// uvVersion is the version of the installer of the Python tools, which is the one of
// scripts/real-vllm.
const uvVersion = "0.13.9"

// workshop is the cache: what has been installed, downloads, and the logs of the last run.
type workshop struct {
	dir        string // CLIENTS_CACHE
	e2e        string // E2E_CACHE
	installing time.Duration
	started    []engine // real ones that run because of this run
}

func openWorkshop() (*workshop, error) {
	dir, err := process.CacheDir("CLIENTS_CACHE", "xpyd-clients")
	if err != nil {
		return nil, err
	}
	e2e, err := process.E2ECache()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache (name another one in CLIENTS_CACHE): %w", err)
	}
	return &workshop{dir: dir, e2e: e2e}, nil
}

// install makes the folder name by make, unless it was made from the same files and words before. A
// folder that is only half made is made again, and downloads are kept. If something cannot be
// installed, this machine or its network lacks something, and the error is a cannotError.
func (w *workshop) install(name string, from []string, words string, make func(dir string) error) (string, error) {
	dir := filepath.Join(w.dir, name)
	stamp := dir + ".stamp"
	hash := sha256.New()
	for _, file := range from {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("want to run in the module's root: %w", err)
		}
		_, _ = hash.Write(text) // a hash's Write never fails
	}
	recipe := fmt.Sprintf("%x %s\n", hash.Sum(nil), words)
	if old, err := os.ReadFile(stamp); err == nil && string(old) == recipe {
		return dir, nil
	}
	fmt.Println("installing", name)
	begun := time.Now()
	defer func() { w.installing += time.Since(begun) }()
	err := errors.Join(os.RemoveAll(stamp), os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
	if err == nil {
		err = make(dir)
	}
	if err == nil {
		err = os.WriteFile(stamp, []byte(recipe), 0o644)
	}
	return dir, notInstalled(name, err)
}

// notInstalled makes a cannotError of any error except nil.
func notInstalled(name string, err error) error {
	if err == nil || errors.As(err, new(cannotError)) {
		return err
	}
	return cannotError{fmt.Sprintf("%s cannot be installed (is the package registry in reach, the disk full?): %v", name, err)}
}

// call runs a program to its end in a process group of its own, with its output in log. The error
// has the last line of the output.
func call(ctx context.Context, log, dir string, env []string, program string, args ...string) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", program, err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if wrong := out.Close(); err == nil {
		return wrong
	}
	text, _ := os.ReadFile(log) // the error below says where it is
	return fmt.Errorf("%s: %w: %.300s (log: %s)", filepath.Base(program), err, lastLine(text), log)
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// findPython returns the first Python of at least 3.minor that can make environments.
func findPython(ctx context.Context, minor int) (string, error) {
	names := []string{os.Getenv("PYTHON"), "python3", "python3.12", "python3.13"}
	home, _ := os.UserHomeDir() // without a home directory nothing is found there
	pyenv, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", "3.1[23].*", "bin", "python"))
	probe := fmt.Sprintf("import sys, venv, ensurepip; sys.exit(not (3, %d) <= sys.version_info < (3, 14))", minor)
	for _, name := range append(names, pyenv...) {
		if name == "" {
			continue
		}
		if exec.CommandContext(ctx, name, "-c", probe).Run() == nil {
			return name, nil
		}
	}
	return "", cannotError{fmt.Sprintf("no Python 3.%d to 3.13 with venv; install python3 and python3-venv, or name one in PYTHON", minor)}
}

// venv makes a Python environment in dir.
func venv(ctx context.Context, dir string, minor int) error {
	python, err := findPython(ctx, minor)
	if err != nil {
		return err
	}
	return call(ctx, dir+".log", "", nil, python, "-m", "venv", dir)
}

// uv returns the path of uv, which is installed if need be.
func (w *workshop) uv(ctx context.Context) (string, error) {
	dir, err := w.install("uv", nil, uvVersion, func(dir string) error {
		if err := venv(ctx, dir, 10); err != nil {
			return err
		}
		return call(ctx, dir+".log", "", w.pipEnv(), filepath.Join(dir, "bin", "pip"), "install", "-q", "uv=="+uvVersion)
	})
	return filepath.Join(dir, "bin", "uv"), err
}

func (w *workshop) pipEnv() []string {
	return []string{"PIP_CACHE_DIR=" + filepath.Join(w.dir, "downloads", "pip"), "PIP_DISABLE_PIP_VERSION_CHECK=1"}
}

// uvEnv shares vLLM's downloads if there are any, because guidellm needs the same torch.
func (w *workshop) uvEnv() []string {
	downloads := filepath.Join(w.e2e, "downloads")
	if _, err := os.Stat(downloads); err != nil {
		downloads = filepath.Join(w.dir, "downloads", "uv")
	}
	env := []string{"UV_CACHE_DIR=" + downloads, "UV_PYTHON_DOWNLOADS=never"}
	if index := os.Getenv("PIP_INDEX_URL"); index != "" && os.Getenv("UV_DEFAULT_INDEX") == "" {
		env = append(env, "UV_DEFAULT_INDEX="+index)
	}
	return env
}
