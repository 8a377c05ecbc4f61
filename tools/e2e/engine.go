package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// spec is how an engine is started.
type spec struct {
	name   string
	role   string   // plain, prefill or decode; store: no engine, but the cache server of some
	port   int      // counted from the first port of the run
	policy string   // kv_load_failure_policy of a decode engine: fail or recompute; "" is vLLM's default
	lease  int      // kv_lease_duration of a prefill engine in seconds; 0 is vLLM's default
	args   []string // further ones of vllm serve
	images bool     // the engine has the model that reads images, and says in its log which encodings it loads
	model  string   // the name of its model; "" is tiny
	ranks  int      // data-parallel ranks of the server; 0 is one
	kv     string   // its connector, where that is not the run's
	listed bool     // it publishes KV events, and writes down how many blocks its prefix cache has, see cacheList
}

// options are the arguments of vllm serve.
func (s spec) options() []string {
	all := slices.Clone(s.args)
	if s.model != "" {
		all = append(all, "--served-model-name", s.model)
	}
	if s.ranks > 0 {
		all = append(all, "--data-parallel-size", strconv.Itoa(s.ranks))
	}
	return all
}

// engine is one vLLM server. The process belongs to a session of its own, which engine.sh
// has made.
type engine struct {
	spec
	url, addr string // http://127.0.0.1:8320 and without the scheme
	log       string // path of the file
	fleet     *fleet
}

func newEngine(f *fleet, s spec) *engine {
	addr := fmt.Sprintf("127.0.0.1:%d", f.opts.ports+s.port)
	return &engine{spec: s, fleet: f, addr: addr, url: "http://" + addr, log: filepath.Join(f.runDir, s.name+".log")}
}

// start starts the engine and returns after it answers. It first clears away what an engine of that
// name has left behind.
func (e *engine) start(ctx context.Context) error {
	if err := e.clear(ctx); err != nil {
		return err
	}
	e.fleet.guard.mind(e.name)
	args := append([]string{"start", e.name, e.role, strings.TrimPrefix(e.addr, "127.0.0.1:")}, e.options()...)
	if err := e.fleet.call(ctx, e.env(), args...); err != nil {
		return err
	}
	if e.ranks == 0 && e.role != "store" { // those of others wait until it was seen what xpyd finds on a server without a request
		if err := e.warm(ctx); err != nil {
			return fmt.Errorf("first request to %s: %w", e.name, err)
		}
	}
	if err := os.WriteFile(e.specFile(), e.text(), 0o644); err != nil {
		return fmt.Errorf("keep the spec of %s: %w", e.name, err)
	}
	return nil
}

// warm makes the engine compile what its first request with log probabilities needs, which takes
// from seconds to minutes. Meanwhile the engine does nothing else, and the leases of handles that
// wait for it would run out.
func (e *engine) warm(ctx context.Context) error {
	var errs []error
	for rank := range max(1, e.ranks) {
		errs = append(errs, e.warmRank(ctx, rank))
	}
	return errors.Join(errs...)
}

func (e *engine) warmRank(ctx context.Context, rank int) error {
	const body = `{"model":%q,"prompt":"the first","max_tokens":2,"temperature":0,"logprobs":1}`
	text := fmt.Sprintf(body, cmp.Or(e.model, "tiny"))
	var header []string
	if e.ranks > 0 {
		header = []string{"X-data-parallel-rank", strconv.Itoa(rank)}
	}
	res, err := process.Send(ctx, http.DefaultClient, e.url+"/v1/completions", []byte(text), header...)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("status %d", res.StatusCode), err)
	}
	return nil
}

// connector is how the engine hands KV over.
func (e *engine) connector() connector {
	kv, err := connectorNamed(e.kv)
	if err != nil {
		return e.fleet.opts.kv
	}
	return kv
}

// entry is what xpyd is told of the engine. How many ranks it has xpyd finds by itself.
func (e *engine) entry() string {
	entry := e.url
	if e.ranks > 0 {
		entry += "@auto"
	}
	if e.role == "prefill" {
		entry = e.connector().prefill(entry, e)
	}
	if e.listed {
		entry += " kv_events=auto"
	}
	if e.kv != "" {
		entry += " connector=" + e.connector().option()
	}
	return entry
}

func (e *engine) env() []string {
	env := append(e.connector().env(e.role, e.fleet.blocks), "KV_POLICY="+e.policy)
	if e.images {
		env = append(env, "IMAGES=1", "VLLM_LOGGING_LEVEL=DEBUG")
	}
	if e.listed {
		env = append(env, "CACHE_LIST="+e.cacheList())
	}
	if e.lease > 0 {
		env = append(env, "KV_LEASE="+strconv.Itoa(e.lease))
	}
	return env
}

// stop ends the engine and clears away what it leaves behind. An engine that does not run is no
// error.
func (e *engine) stop(ctx context.Context) error {
	if err := e.clear(ctx); err != nil {
		return err
	}
	e.fleet.guard.forget(e.name)
	return nil
}

// clear ends an engine of that name and removes what it, or one that was killed, has left.
func (e *engine) clear(ctx context.Context) error {
	_ = os.Remove(e.specFile())
	if _, err := os.Stat(e.pidFile()); err != nil {
		return nil // none has run
	}
	return e.fleet.call(ctx, nil, "stop", e.name)
}

func (e *engine) pidFile() string { return filepath.Join(e.fleet.runDir, e.name+".pid") }

// signal sends sig to every process of the engine.
func (e *engine) signal(sig syscall.Signal) error {
	leader, err := e.pid()
	if err != nil {
		return err
	}
	members, err := session(leader)
	if err != nil {
		return err
	}
	if len(members) == 0 {
		return fmt.Errorf("send %v to %s: it does not run", sig, e.name)
	}
	for _, pid := range members {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("send %v to %s: %w", sig, e.name, err)
		}
	}
	return nil
}

// pid returns the first process of the engine, as engine.sh has noted it.
func (e *engine) pid() (int, error) {
	text, err := os.ReadFile(e.pidFile())
	if err != nil {
		return 0, fmt.Errorf("find the process of %s: %w", e.name, err)
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0, fmt.Errorf("find the process of %s: %s.pid is empty", e.name, e.name)
	}
	return strconv.Atoi(fields[0])
}

// session lists the processes of a session, by its leader's number.
func session(leader int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var members []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// After the name in parentheses stand state, parent, group and session.
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 3 && fields[0] != "Z" && fields[3] == strconv.Itoa(leader) {
			members = append(members, pid)
		}
	}
	return members, nil
}

// running reports whether the engine answers.
func (e *engine) running(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	page := "/health"
	if e.role == "store" {
		page = "/healthcheck"
	}
	_, err := get(ctx, e.url+page)
	return err == nil
}

// adopt takes over an engine that an earlier run has kept, if it was started the same way.
func (e *engine) adopt(ctx context.Context) bool {
	text, err := os.ReadFile(e.specFile())
	if err != nil || string(text) != string(e.text()) {
		return false
	}
	leader, err := e.pid()
	if err != nil {
		return false
	}
	members, err := session(leader)
	if err != nil || len(members) == 0 || !e.running(ctx) {
		return false
	}
	e.fleet.guard.mind(e.name)
	return true
}

func (e *engine) specFile() string { return filepath.Join(e.fleet.runDir, e.name+".spec") }

// text identifies how the engine was started.
func (e *engine) text() []byte {
	text, err := json.Marshal([]any{e.name, e.role, e.addr, e.lease, e.options(), e.fleet.opts.version, e.env()})
	if err != nil {
		panic("BUG: spec that is no JSON: " + err.Error())
	}
	return text
}

func (e *engine) same(other *engine) bool { return string(e.text()) == string(other.text()) }

// page returns what the engine counts.
func (e *engine) page(ctx context.Context) (process.Page, error) {
	page, err := process.PageOf(ctx, e.url)
	if err != nil {
		return page, fmt.Errorf("read metrics of %s: %w", e.name, err)
	}
	return page, nil
}

// metric is the sum of the series of a metric that carry all labels, each given as
// key="value".
func (e *engine) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	page, err := e.page(ctx)
	if err != nil {
		return 0, err
	}
	return page.Sum(name, labels...)
}

// get returns the body of an answer with status 200.
func get(ctx context.Context, url string) ([]byte, error) { return process.Get(ctx, url) }
