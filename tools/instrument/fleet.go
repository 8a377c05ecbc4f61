package instrument

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// fleet is a prefill and a decode engine with xpyd in front of them.
type fleet struct {
	url   string
	model string
	end   []func() error
}

// stop ends what was started, the last first.
func (f *fleet) stop() error {
	var all error
	for i := len(f.end) - 1; i >= 0; i-- {
		all = errors.Join(all, f.end[i]())
	}
	return all
}

const stopTime = 10 * time.Second

// simulate starts simulated engines of a pace that a GPU could have: 128 ms for the first token of
// 512, 20 ms for each further one. Requests do not slow each other, so that both tools meet the same.
func simulate(ctx context.Context, xpyd, dir string) (f *fleet, err error) {
	f = &fleet{model: "sim"}
	var pools []string
	for _, role := range []string{"prefill", "decode"} {
		p, url, err := process.StartSim(ctx, filepath.Join(dir, role+".log"), xpyd, "--role", role,
			"--prefill-speed", "4000", "--token-latency", "20ms", "--max-num-batched-tokens", "-1", "--max-num-seqs", "512", "--num-blocks", "65536", "--no-prefix-caching")
		if p != nil {
			f.end = append(f.end, func() error { return p.End(stopTime) })
		}
		if err != nil {
			return f, err
		}
		pools = append(pools, url)
	}
	return f, f.serve(ctx, xpyd, dir, pools[0], pools[1])
}

// realPorts are those of the two real engines, which cannot choose their own.
var realPorts = [...]string{"8391", "8393"}

// realPair starts two vLLM engines on this machine's CPU, by the scripts of make e2e.
func realPair(ctx context.Context, xpyd, dir string) (f *fleet, err error) {
	f = &fleet{model: "tiny"}
	for i, role := range []string{"prefill", "decode"} {
		name := "agree-" + role
		if err := engineScript(ctx, "start", name, role, realPorts[i]); err != nil {
			return f, err
		}
		f.end = append(f.end, func() error { return engineScript(context.WithoutCancel(ctx), "stop", name) })
	}
	return f, f.serve(ctx, xpyd, dir, "http://127.0.0.1:"+realPorts[0], "http://127.0.0.1:"+realPorts[1])
}

func (f *fleet) serve(ctx context.Context, xpyd, dir, prefill, decode string) error {
	x, err := process.Serve(ctx, filepath.Join(dir, "xpyd.log"), nil, xpyd, "--prefill", prefill, "--decode", decode)
	if err != nil {
		return err
	}
	f.url = "http://" + x.Addr
	f.end = append(f.end, func() error { return x.End(stopTime) })
	return nil
}

func engineScript(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join("scripts", "real-vllm", "engine.sh"), args...)
	cmd.Stderr = os.Stderr
	// Its script ends an engine that is not up by then.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s a real engine (in the repository's root, after scripts/real-vllm/setup.sh): %w", args[0], err)
	}
	return nil
}

// venv is where scripts/real-vllm/setup.sh puts vLLM and its model.
func venv() (vllm, tokenizer string, err error) {
	cache, err := process.E2ECache()
	if err != nil {
		return "", "", err
	}
	found, err := filepath.Glob(filepath.Join(cache, "venv-*", "bin", "vllm"))
	if err != nil || len(found) == 0 {
		return "", "", fmt.Errorf("vLLM is not in %s: run scripts/real-vllm/setup.sh, or name --vllm and --tokenizer", cache)
	}
	return found[len(found)-1], filepath.Join(cache, "model"), nil
}
