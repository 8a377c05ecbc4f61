package versus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// contender is something to measure.
type contender struct {
	name string
	xpyd bool // a build of it: bars are for it
	legs int  // 2: each request passes a prefill engine first
	// start runs it before the engines; dir is its own, for a configuration and logs.
	start func(ctx context.Context, to target) (*running, error)
}

// target is what a proxy is started in front of.
type target struct {
	prefill, decode []string // host:port
	dir             string
	cores           int
}

// running is a proxy that serves. process is nil where clients go straight to an engine.
type running struct {
	addr  string
	admin string // of xpyd: its admin port
	*process
}

// Names of contenders.
const (
	nameXpyd    = "xpyd"
	nameNginx   = "nginx"
	nameRelay   = "relay"
	nameHAProxy = "haproxy"
	nameRouter  = "vllm-router"
	nameDirect  = "direct"
)

// direct has the clients talk to a decode engine.
func direct() contender {
	return contender{name: nameDirect, start: func(_ context.Context, to target) (*running, error) {
		return &running{addr: to.decode[0]}, nil
	}}
}

// xpyd runs a build of it with its defaults: every feature, metrics, log to a file.
func xpyd(name, executable string) contender {
	return contender{name: name, xpyd: true, legs: 2, start: func(ctx context.Context, to target) (*running, error) {
		args := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--decode", strings.Join(urls(to.decode), ",")}
		if len(to.prefill) > 0 {
			args = append(args, "--prefill", strings.Join(urls(to.prefill), ","))
		}
		p, err := startProcess(ctx, filepath.Join(to.dir, "xpyd.log"), goCores(to), executable, args...)
		if err != nil {
			return nil, err
		}
		r := &running{process: p}
		var serving struct{ Listen, Admin string }
		line, err := p.awaitLine(ctx, `"message":"serving"`)
		if err == nil {
			err = json.Unmarshal(line, &serving)
		}
		if err == nil {
			r.addr, r.admin = serving.Listen, serving.Admin
			err = awaitHTTP(ctx, p, "http://"+serving.Listen+"/readyz")
		}
		if err != nil {
			p.stop()
			return nil, err
		}
		return r, nil
	}}
}

// relay copies bytes and understands nothing: a goroutine a direction.
func relay(executable string) contender {
	return contender{name: nameRelay, start: func(ctx context.Context, to target) (*running, error) {
		p, err := startProcess(ctx, filepath.Join(to.dir, "relay.log"), goCores(to), executable, "bench", "relay", "--to", to.decode[0])
		if err != nil {
			return nil, err
		}
		var serving struct{ Listen string }
		line, err := p.awaitLine(ctx, `"listen"`)
		if err == nil {
			err = json.Unmarshal(line, &serving)
		}
		if err != nil {
			p.stop()
			return nil, err
		}
		return &running{addr: serving.Listen, process: p}, nil
	}}
}

func urls(addrs []string) []string {
	all := make([]string, len(addrs))
	for i, a := range addrs {
		all[i] = "http://" + a
	}
	return all
}

func goCores(to target) []string { return []string{"GOMAXPROCS=" + strconv.Itoa(to.cores)} }

// freePort is a port that nobody listens on at this moment, for programs that cannot
// say which they were given.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// awaitHTTP waits until the proxy answers 200.
func awaitHTTP(ctx context.Context, p *process, url string) error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		if ok, err := answers(ctx, url); ok || ctx.Err() != nil {
			return err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended: %s", p.cmd.Path, p.tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New(url + " was not answered with 200 within 60 s")
}

func answers(ctx context.Context, url string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, fmt.Errorf("ask %s: %w", url, err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, fmt.Errorf("ask %s: %w", url, err)
	}
	return resp.StatusCode == http.StatusOK, resp.Body.Close()
}

// found is the path of a program, "" if it is not installed. Debian keeps daemons out of
// the PATH of those who are not root.
func found(name string) string {
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return ""
}
