package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"xpyd/tools/process"
)

// vllmVersion is the vLLM of the rows before real engines, and of vllm bench serve.
const vllmVersion = "0.32.0"

// vllmClients are the SDKs before real vLLM engines. They try less than before simulated ones, because a
// real engine fails only by chance.
func vllmClients() []client {
	return []client{
		{name: "openai for Python before vLLM", version: "3.54.0", key: true, vllm: true, run: func(ctx context.Context, j *job) (tally, error) {
			return j.pythonChecks(ctx, "before_vllm.py")
		}},
		{name: "openai for Node before vLLM", version: "7.57.0", key: true, vllm: true, run: func(ctx context.Context, j *job) (tally, error) {
			return j.nodeChecks(ctx, "before_vllm.mjs")
		}},
		{name: "openai for Go before vLLM", version: "3.96.0", key: true, vllm: true, run: runGo},
	}
}

// engine is how one real engine is started.
type engine struct {
	name, role, port string
	args             []string
}

// vllmEngines are a pair that shares a small model, and one with an embedding model.
func vllmEngines() []engine {
	tools := []string{"--enable-auto-tool-choice", "--tool-call-parser", "hermes"}
	return []engine{
		{"clients-prefill", "prefill", "8430", tools},
		{"clients-decode", "decode", "8431", tools},
		{"clients-embedder", "plain", "8432", []string{"--runner", "pooling", "--convert", "embed", "--served-model-name", "embedder"}},
	}
}

func (e engine) url() string { return "http://127.0.0.1:" + e.port }

// engineScript runs scripts/real-vllm/engine.sh.
func (w *workshop) engineScript(ctx context.Context, log string, args ...string) error {
	env := []string{"E2E_CACHE=" + w.e2e, "VERSION=" + vllmVersion, "START_TIMEOUT=480"}
	return call(ctx, log, "", env, filepath.Join("scripts", "real-vllm", "engine.sh"), args...)
}

// startVLLM starts the engines that do not run yet, all at once, because an import of vLLM is most of it.
// Those that somebody has started under the same names are used, and left.
func (w *workshop) startVLLM(ctx context.Context, dir string) error {
	var starting []engine
	for _, e := range vllmEngines() {
		if _, err := get(ctx, e.url()+"/health"); err != nil {
			starting = append(starting, e)
		}
	}
	if len(starting) == 0 {
		return nil
	}
	if _, err := installVLLM(ctx, &job{workshop: w, dir: dir}); err != nil {
		return err
	}
	fmt.Println("starting vLLM engines")
	done := make(chan error)
	for _, e := range starting {
		w.started = append(w.started, e)
		go func() {
			done <- w.engineScript(ctx, filepath.Join(dir, e.name+".log"), append([]string{"start", e.name, e.role, e.port}, e.args...)...)
		}()
	}
	var all error
	for range starting {
		all = errors.Join(all, <-done)
	}
	return all
}

// stopVLLM ends the engines that this run has started. One whose start failed has no number any more.
func (w *workshop) stopVLLM() (all error) {
	for _, e := range w.started {
		if _, err := os.Stat(filepath.Join(w.e2e, "run", e.name+".pid")); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // an interrupted run ends them too
		all = errors.Join(all, w.engineScript(ctx, filepath.Join(w.dir, "stop.log"), "stop", e.name))
		cancel()
	}
	w.started = nil
	return all
}

// startVLLMFleet puts xpyd in front of the real engines.
func (w *workshop) startVLLMFleet(ctx context.Context, xpyd, dir string) (*fleet, error) {
	if err := w.startVLLM(ctx, dir); err != nil {
		return nil, err
	}
	f := &fleet{dir: dir, vllm: true}
	for _, e := range vllmEngines() {
		if e.role == "prefill" {
			f.prefill = append(f.prefill, e.url())
		} else {
			f.decode = append(f.decode, e.url())
		}
	}
	return f, f.startGuarded(ctx, xpyd)
}

// inspectVLLM expects that nothing runs in the engines, and that no block is in use, soon after a client's
// end. A block that only its lease frees is in use for longer.
func (f *fleet) inspectVLLM(ctx context.Context) error {
	names := []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}
	for end := time.Now().Add(freeTime); ; time.Sleep(100 * time.Millisecond) {
		var busy []string
		for _, url := range append(append([]string{}, f.prefill...), f.decode...) {
			page, err := process.PageOf(ctx, url)
			if err != nil {
				return err
			}
			for _, name := range names {
				n, err := page.Sum(name)
				if err != nil {
					return err
				}
				if n != 0 {
					busy = append(busy, fmt.Sprintf("%s of %s is %g", name, url, n))
				}
			}
		}
		if len(busy) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%v after the client's end: %s", freeTime, strings.Join(busy, ", "))
		}
	}
}
