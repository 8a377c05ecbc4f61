package monitoring

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"xpyd/tools/certs"
	"xpyd/tools/process"
)

// deployment is xpyd demo, and a second proxy that has what the demo leaves out: a certificate, caps of
// requests in flight, keys, handles that nobody gives back, a prefill engine that can die, a decode engine
// that cannot pull, and an encode engine.
type deployment struct {
	xpyd, dir       string
	demo, second    *process.Process
	mortal, deaf    engine   // of second; mortal is its only prefill engine
	encode          engine   // of second
	proxies         []string // base URLs of the data ports
	admins          []string // host:port of the admin ports
	prefill, decode []string // base URLs of engines
}

func (d *deployment) stop() {
	for _, p := range []*process.Process{d.second, d.mortal.Process, d.deaf.Process, d.encode.Process, d.demo} {
		if p != nil {
			p.Stop()
		}
	}
}

// engines are host:port of all engines.
func (d *deployment) engines() (all []string) {
	for _, e := range append(d.prefill, d.decode...) {
		all = append(all, strings.TrimPrefix(e, "http://"))
	}
	return append(all, d.mortal.addr, d.deaf.addr, d.encode.addr)
}

// engine is a simulated engine in a process of its own.
type engine struct {
	*process.Process
	addr string // host:port
}

// startEngine starts e, on the same port each time.
func (d *deployment) startEngine(ctx context.Context, e *engine, name, role string) (err error) {
	if e.addr == "" {
		if e.addr, err = process.FreePort(); err != nil {
			return err
		}
	}
	e.Process, err = process.Start(filepath.Join(d.dir, name+".log"), nil, d.xpyd, "sim", "--name", name, "--role", role, "--listen", e.addr)
	if err == nil {
		err = e.AwaitHTTP(ctx, "http://"+e.addr+"/health")
	}
	return err
}

func (d *deployment) startMortal(ctx context.Context) error {
	return d.startEngine(ctx, &d.mortal, "mortal", "prefill")
}

var (
	demoPools = regexp.MustCompile(`(?m)^(?:engines)? +(prefill|decode) +(.*)$`)
	demoProxy = regexp.MustCompile(`proxy +(http://\S+) .*metrics: http://([^/]+)/metrics`)
)

func deploy(ctx context.Context, dir, xpyd string) (*deployment, error) {
	log := filepath.Join(dir, "demo.log")
	demo, err := process.Start(log, nil, xpyd, "demo", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &deployment{xpyd: xpyd, dir: dir, demo: demo}
	if _, err := demo.AwaitLine(ctx, "serving until"); err != nil {
		d.stop()
		return nil, err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		d.stop()
		return nil, err
	}
	for _, m := range demoPools.FindAllSubmatch(text, -1) {
		pool := &d.prefill
		if string(m[1]) == "decode" {
			pool = &d.decode
		}
		*pool = strings.Fields(string(m[2]))
	}
	m := demoProxy.FindSubmatch(text)
	if m == nil || len(d.prefill) != 2 || len(d.decode) != 2 {
		d.stop()
		return nil, fmt.Errorf("xpyd demo says nothing of its addresses: %s", text)
	}
	d.proxies, d.admins = []string{string(m[1])}, []string{string(m[2])}
	if err := d.addSecond(ctx); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// The keys of the second proxy. The demo asks for none.
const teamKey, batchKey = "check-team", "check-batch"

// addSecond starts the second proxy. Its data port speaks TLS.
func (d *deployment) addSecond(ctx context.Context) error {
	ca, err := certs.New(d.dir)
	if err != nil {
		return err
	}
	own, err := ca.Pair("own.pem")
	if err != nil {
		return err
	}
	keys := filepath.Join(d.dir, "keys.yaml")
	if err := os.WriteFile(keys, fmt.Appendf(nil, "keys:\n- {name: team, sha256: %x}\n- {name: batch, sha256: %x, requests_per_minute: 10}\n", sha256.Sum256([]byte(teamKey)), sha256.Sum256([]byte(batchKey))), 0o600); err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	if err := errors.Join(d.startMortal(ctx), d.startEngine(ctx, &d.deaf, "deaf", "both"), d.startEngine(ctx, &d.encode, "encode", "encode")); err != nil {
		return err
	}
	x, err := process.Serve(ctx, filepath.Join(d.dir, "second.log"), nil, d.xpyd, "--prefill", "http://"+d.mortal.addr, "--encode", "http://"+d.encode.addr,
		"--decode", strings.Join(append(d.decode, "http://"+d.deaf.addr), ","), "--tls-cert", own, "--tls-key", own, "--keys-file", keys,
		"--prefill-max-in-flight", "1", "--decode-max-in-flight", "2", "--kv-release", "off", "--kv-transfer-gbps", "10")
	if err != nil {
		return err
	}
	d.second, d.proxies, d.admins = x.Process, append(d.proxies, "https://"+x.Addr), append(d.admins, x.Admin)
	return nil
}

// fault makes an engine misbehave, or ends that if text is empty.
func fault(ctx context.Context, engine, text string) error {
	body := fmt.Appendf(nil, "%q", text)
	if text == "" {
		body = []byte("{}")
	}
	target, err := url.JoinPath(engine, "/sim/fault")
	if err != nil {
		return err
	}
	if _, err := process.Post(ctx, target, body); err != nil {
		return fmt.Errorf("set the fault %s: %w", text, err)
	}
	return nil
}
