package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"xpyd/tools/certs"
	"xpyd/tools/process"
)

const (
	stopTime = 15 * time.Second
	apiKey   = "sk-clients"
	// heldStreams is limits.client_in_flight of a fleet with a key, and fewStreams before real engines.
	heldStreams = 20
	fewStreams  = 4
)

// fleet is two prefill and two decode engines, simulated, with xpyd in front of them. Each is a
// process of its own on loopback ports that it chose.
type fleet struct {
	prefill, decode []string         // base URLs
	url, admin      string           // of xpyd
	vllm            bool             // the engines are real ones, and not of this fleet
	ca              string           // file of the CA of this run, with a key: url is https:// then
	victim          *process.Process // another xpyd in front of the same engines, without TLS, which a check kills; nil without a key
	victimURL       string
	processes       []*process.Process // in the order of their start
	dir             string
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
	if !key {
		x, err := f.startProxy(ctx, xpyd, "xpyd")
		f.url, f.admin = x.url, x.admin
		return f, err
	}
	return f, f.startGuarded(ctx, xpyd)
}

// startGuarded starts an xpyd that wants a key and speaks TLS, and one that wants a key only. The clients get
// the CA's file in the way that their documentation tells. No other CA of the machine has signed anything, so a
// client that ignores the file cannot connect.
func (f *fleet) startGuarded(ctx context.Context, xpyd string) (err error) {
	ca, err := certs.New(f.dir)
	if err != nil {
		return err
	}
	own, err := ca.Pair("own.pem")
	if err != nil {
		return err
	}
	f.ca = ca.File()
	config := filepath.Join(f.dir, "xpyd.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "limits:\n  client_in_flight: %d\n", f.held()), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	guard := []string{"--api-key", apiKey, "--config", config}
	x, err := f.startProxy(ctx, xpyd, "xpyd", append(guard, "--tls-cert", own, "--tls-key", own)...)
	if err != nil {
		return err
	}
	f.url, f.admin = "https"+strings.TrimPrefix(x.url, "http"), x.admin
	if f.vllm {
		return nil // simulated engines are enough for a proxy that is killed
	}
	x, err = f.startProxy(ctx, xpyd, "victim", guard...)
	f.victim, f.victimURL = x.process, x.url
	return err
}

// startEngine starts ./xpyd sim and returns the URL that it reports.
func (f *fleet) startEngine(ctx context.Context, xpyd, role, name string) (string, error) {
	p, url, err := process.StartSim(ctx, f.log(name), xpyd, "--role", role, "--name", name, "--tool-call-parser", "hermes")
	if p != nil {
		f.processes = append(f.processes, p)
	}
	return url, err
}

// held is how many streams one client may have at once.
func (f *fleet) held() int {
	if f.vllm {
		return fewStreams
	}
	return heldStreams
}

// proxy is one ./xpyd serve.
type proxy struct {
	process    *process.Process
	url, admin string // http://127.0.0.1:…, of both ports
}

// startProxy starts ./xpyd serve and waits until it is ready.
func (f *fleet) startProxy(ctx context.Context, xpyd, name string, flags ...string) (proxy, error) {
	args := append([]string{"--log-format", "json",
		"--prefill", strings.Join(f.prefill, ","), "--decode", strings.Join(f.decode, ",")}, flags...)
	x, err := process.Serve(ctx, f.log(name), nil, xpyd, args...)
	if err != nil {
		return proxy{}, err
	}
	f.processes = append(f.processes, x.Process)
	return proxy{x.Process, "http://" + x.Addr, "http://" + x.Admin}, nil
}

func (f *fleet) log(name string) string { return filepath.Join(f.dir, name+".log") }

// stop ends all processes, xpyd first. Each must end with status 0.
func (f *fleet) stop() (failures []string) {
	for i := len(f.processes) - 1; i >= 0; i-- {
		p := f.processes[i]
		err := p.End(stopTime)
		if p == f.victim {
			continue // its client killed it, if it got that far
		}
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	return failures
}

// get returns the body of a 200.
func get(ctx context.Context, url string) ([]byte, error) { return process.Get(ctx, url) }
