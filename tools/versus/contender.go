package versus

import (
	"context"
	"path/filepath"
	"strconv"

	"xpyd/tools/process"
)

// names are the contenders' in the order of their colours in charts.
func names() []string {
	return []string{nameXpyd, nameNginx, nameRelay, nameHAProxy, nameRouter, nameDirect, nameBuffered}
}

// contender is something to measure.
type contender struct {
	name string
	xpyd bool // a build of it: bars are for it
	legs int  // with 2, each request goes to a prefill engine first
	// start runs it before the engines. dir is its own, for a configuration and logs.
	start func(ctx context.Context, to target) (*running, error)
}

// target is what a proxy is started in front of.
type target struct {
	prefill, decode []string // host:port
	dir             string
	cores           int
}

// running is a proxy that serves. Process is nil if clients go straight to an engine.
type running struct {
	addr  string
	admin string // of xpyd: its admin port
	*process.Process
}

// Names of contenders.
const (
	nameXpyd    = "xpyd"
	nameNginx   = "nginx" // passes a body on as it reads it
	nameRelay   = "relay"
	nameHAProxy = "haproxy"
	nameRouter  = "vllm-router"
	nameDirect  = "direct"

	nameBuffered = "nginx-buffered" // nginx that reads a body into memory, and passes it on in one write
)

// form returns nginx for each of its forms, and otherwise the name itself.
func form(name string) string {
	if name == nameBuffered {
		return nameNginx
	}
	return name
}

// one is a program with one form.
func one(start func(executable string) contender) func(string) []contender {
	return func(executable string) []contender { return []contender{start(executable)} }
}

// direct connects the clients to a decode engine.
func direct() contender {
	return contender{name: nameDirect, start: func(_ context.Context, to target) (*running, error) {
		return &running{addr: to.decode[0]}, nil
	}}
}

// xpyd runs a build of it with its defaults: every feature, metrics, log to a file.
func xpyd(name, executable string) contender {
	return contender{name: name, xpyd: true, legs: 2, start: func(ctx context.Context, to target) (*running, error) {
		x, err := process.StartXpyd(ctx, to.dir, goCores(to), executable, process.Pools{Prefill: to.prefill, Decode: to.decode})
		if err != nil {
			return nil, err
		}
		return &running{addr: x.Addr, admin: x.Admin, Process: x.Process}, nil
	}}
}

// relay copies bytes without reading them, with a goroutine for each direction.
func relay(executable string) contender {
	return contender{name: nameRelay, start: func(ctx context.Context, to target) (*running, error) {
		var serving struct{ Listen string }
		p, err := process.StartTelling(ctx, filepath.Join(to.dir, "relay.log"), goCores(to), `"listen"`, &serving, executable, "relay", "--to", to.decode[0])
		if err != nil {
			return nil, err
		}
		return &running{addr: serving.Listen, Process: p}, nil
	}}
}

func goCores(to target) []string { return []string{"GOMAXPROCS=" + strconv.Itoa(to.cores)} }
