package instrument

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// Load is what each tool is told to send. Both read the same prompts in the same order, and send
// them at the same times.
type Load struct {
	Model       string
	API         string // completions or chat
	Prompts     string // file of {"prompt": …}, a line each
	Count       int
	OutputLen   int
	Rate        float64 // requests a second; 0: as Concurrency lets
	Concurrency int     // 0: no cap
	Warmups     int     // requests before those that count
	Seed        int
	Salt        string // cache_salt of each request, so that no run meets what another has cached
}

// tool is a load generator.
type tool struct {
	name    string
	program string
	env     []string
	// args returns the arguments of a run against url whose result goes to the file out of dir.
	args func(l Load, url, dir, out string) []string
	read func(path string) (map[string]float64, error)
	mark string // a line of its output that comes just before its load; "": there is none
}

const (
	toolXpyd = "xpyd"
	toolVLLM = "vllm"
)

func xpydTool(program string) tool {
	return tool{name: toolXpyd, program: program, read: readNumbers, mark: "Traffic request rate: ", args: func(l Load, url, dir, out string) []string {
		return append([]string{"bench", "serve", "--url", url, "--dataset", "prompts", "--file", l.Prompts, "--in-order", "--no-progress",
			"--api", l.API, "--out", dir, "--max-lateness", "0"}, common(l, out)...)
	}}
}

func vllmTool(program, tokenizer string) tool {
	return tool{name: toolVLLM, program: program, env: []string{"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "PYTHONUNBUFFERED=1"}, read: readNumbers, mark: "Traffic request rate: ", args: func(l Load, url, dir, out string) []string {
		args := append([]string{"bench", "serve", "--base-url", url, "--tokenizer", tokenizer, "--dataset-name", "custom", "--dataset-path", l.Prompts,
			"--disable-shuffle", "--skip-chat-template", "--disable-tqdm", "--save-result", "--save-detailed", "--result-dir", dir}, common(l, out)...)
		if l.API == "chat" {
			args = append(args, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions")
		}
		return args
	}}
}

// common is what both tools take under the same names.
func common(l Load, out string) []string {
	args := []string{"--model", l.Model, "--num-prompts", strconv.Itoa(l.Count), "--output-len", strconv.Itoa(l.OutputLen), "--ignore-eos",
		"--num-warmups", strconv.Itoa(l.Warmups), "--seed", strconv.Itoa(l.Seed), "--temperature", "0", "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "99", "--result-filename", out}
	if l.Salt != "" {
		args = append(args, "--extra-body", fmt.Sprintf(`{"cache_salt":%q}`, l.Salt))
	}
	if l.Rate > 0 {
		args = append(args, "--request-rate", strconv.FormatFloat(l.Rate, 'g', -1, 64))
	}
	if l.Concurrency > 0 {
		args = append(args, "--max-concurrency", strconv.Itoa(l.Concurrency))
	}
	return args
}

// outcome is what came of a tool's run.
type outcome struct {
	cpu    float64            // seconds of user and system time from the tool's mark on, children included
	memory float64            // bytes, of the largest process
	result map[string]float64 // the numbers of its result file
}

// toolTime bounds a run.
const toolTime = 10 * time.Minute

// run runs the tool to its end and reads its result file. Its output goes to a log beside that.
func (t tool) run(ctx context.Context, l Load, url, dir, name string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return outcome{}, fmt.Errorf("run %s: %w", t.name, err)
	}
	cmd := exec.CommandContext(ctx, t.program, t.args(l, url, dir, name+".json")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), append(t.env, "NO_PROXY=127.0.0.1")...), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return outcome{}, errors.Join(fmt.Errorf("run %s: %w", t.name, err), log.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	before, failed := t.awaitMark(cmd.Process.Pid, log.Name(), ended)
	if err := errors.Join(failed, log.Close()); err != nil {
		return outcome{}, fmt.Errorf("run %s: %w (log: %s)", t.name, err, log.Name())
	}
	o := outcome{cpu: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds() - before}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		o.memory = float64(usage.Maxrss) * 1024
	}
	o.result, err = t.read(filepath.Join(dir, name+".json"))
	return o, err
}

// awaitMark waits for the tool's mark and then for its end. It returns the seconds of CPU that the
// tool had used by its mark, and how it ended.
func (t tool) awaitMark(pid int, log string, ended <-chan error) (cpu float64, failed error) {
	for begun := t.mark == ""; !begun; {
		select {
		case failed = <-ended:
			return 0, errors.Join(failed, fmt.Errorf("it has not written %q", t.mark))
		case <-time.After(5 * time.Millisecond):
		}
		text, err := os.ReadFile(log)
		begun = err == nil && bytes.Contains(text, []byte(t.mark))
		if used, err := process.CPU(pid); err == nil {
			cpu = used
		}
	}
	return cpu, <-ended
}

// readNumbers reads the numbers of a JSON object.
func readNumbers(path string) (map[string]float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a result: %w", err)
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("read the result %s: %w", path, err)
	}
	numbers := map[string]float64{}
	for name, value := range members {
		if x, ok := value.(float64); ok {
			numbers[name] = x
		}
	}
	return numbers, nil
}
