package process

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
)

// StartVLLMRouter runs vllm-router with prefill and decode engines and one of its
// policies for both, on threads threads, and waits until an engine answers through it.
func StartVLLMRouter(ctx context.Context, dir string, threads int, executable, policy string, to Pools) (p *Process, addr string, err error) {
	addr, err = FreePort()
	if err != nil {
		return nil, "", err
	}
	metrics, err := FreePort()
	if err != nil {
		return nil, "", err
	}
	args := []string{
		"--vllm-pd-disaggregation", "--kv-connector", "nixl", "--policy", policy,
		"--host", "127.0.0.1", "--port", portOf(addr), "--prometheus-port", portOf(metrics), "--prometheus-host", "127.0.0.1",
	}
	for _, u := range urls(to.Prefill) {
		args = append(args, "--prefill", u)
	}
	for _, u := range urls(to.Decode) {
		args = append(args, "--decode", u)
	}
	p, err = StartPlain(ctx, dir, addr, []string{"TOKIO_WORKER_THREADS=" + strconv.Itoa(threads)}, executable, args...)
	return p, addr, err
}

// StartPlain starts a proxy on a port that it was given, with its output in dir, and
// waits until an engine answers through it.
func StartPlain(ctx context.Context, dir, addr string, env []string, executable string, args ...string) (*Process, error) {
	p, err := Start(filepath.Join(dir, filepath.Base(executable)+".log"), env, executable, args...)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitHTTP(ctx, "http://"+addr+"/health"); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func portOf(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic("BUG: a listener's own address does not split: " + addr)
	}
	return port
}
