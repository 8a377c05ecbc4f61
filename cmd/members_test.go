package cmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xpyd/cmd/config"
	"xpyd/sim"
)

// ctl runs a command of xpyd against the process's admin port and returns what it prints.
func (p *process) ctl(args ...string) (string, error) {
	var out bytes.Buffer
	root := newRootCmd()
	root.SetOut(&out)
	root.SetArgs(append(args, "--admin", "http://"+p.admin))
	err := root.ExecuteContext(p.t.Context())
	return out.String(), err
}

// operate is ctl for what must succeed.
func (p *process) operate(args ...string) string {
	p.t.Helper()
	out, err := p.ctl(args...)
	if err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
	return out
}

// send sends one request to the admin port and returns the status and the body of the answer.
func (p *process) send(method, path, body string, header ...string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequest(method, "http://"+p.admin+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := fresh.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// poolOf returns "URL admin_state weight" of each backend of the role.
func (p *process) poolOf(role string) (all []string) {
	p.t.Helper()
	_, text := p.get(p.admin, "/pools")
	var pools map[string][]struct {
		URL        string  `json:"url"`
		AdminState string  `json:"admin_state"`
		Weight     float64 `json:"weight"`
	}
	if err := json.Unmarshal([]byte(text), &pools); err != nil {
		p.t.Fatal(err)
	}
	for _, b := range pools[role] {
		all = append(all, fmt.Sprint(b.URL, " ", b.AdminState, " ", b.Weight))
	}
	return all
}

func (p *process) expectPool(role string, want ...string) {
	p.t.Helper()
	if got := p.poolOf(role); strings.Join(got, ", ") != strings.Join(want, ", ") {
		p.t.Errorf("%s is %q, want %q", role, got, want)
	}
}

// asked counts the completions that an engine has had since then, without warm-ups. It keeps the last
// ones only.
func asked(e *sim.Engine, since time.Time) (n int) {
	for _, r := range e.Requests() {
		if r.Time.After(since) && strings.Contains(string(r.Body), "prompt") && !strings.Contains(string(r.Body), "warm up") {
			n++
		}
	}
	return n
}

// Engines are drained, stopped and started again one by one under load, as for an upgrade. No request
// and no stream fails, none reaches a drained engine, and no block stays pinned.
func TestDrainUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	engine := func(name string, role sim.Role) *sim.Engine {
		return startEngine(t, sim.Options{Name: name, Role: role, TokenLatency: time.Millisecond, MaxSeqs: 256})
	}
	ps := []*sim.Engine{engine("p1", sim.RolePrefill), engine("p2", sim.RolePrefill)}
	ds := []*sim.Engine{engine("d1", sim.RoleDecode), engine("d2", sim.RoleDecode)}
	p := serveProcess(t, urls(ps...), urls(ds...), "--health-slow-start", "0s", "--decode-policy", "round_robin", "--prefill-policy", "round_robin")
	eventually(t, "all up", func() bool { return p.metric("xpyd_backend_up") == 4 })
	l := startTraffic(p.addr, 12)
	l.more(t, 60)
	streams := longStreams(t, p.addr, 4, 500)
	for i, e := range append(ps, ds...) {
		host := strings.TrimPrefix(e.URL(), "http://")
		out := p.operate("ctl", "drain", host, "--wait")
		if !strings.Contains(out, e.URL()+": drained") {
			t.Errorf("ctl drain says %q", out)
		}
		// Decode tells prefill that it has read the blocks, which may be after its first token.
		eventually(t, e.Name()+" free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
		if n := p.metric(`xpyd_backend_ready{backend="` + e.URL()); n != 0 {
			t.Errorf("xpyd_backend_ready is %v", n)
		}
		p.await(i+1, "backend drained: its last request and handle have ended")
		drained := time.Now()
		l.more(t, 60)
		if n := asked(e, drained); n != 0 {
			t.Errorf("%s got %d requests after it had drained", e.Name(), n)
		}
		p.operate("ctl", "enable", host)
		eventually(t, "used again", func() bool { return asked(e, drained) > 0 })
	}
	l.end(t)
	for i, s := range streams {
		if err := <-s; err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	for _, e := range ps {
		if got := e.Ledger(); got.FreedBy["lease"] != 0 || got.StaleReads != 0 {
			t.Errorf("%s: %v, %d stale reads", e.Name(), got.FreedBy, got.StaleReads)
		}
	}
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
}

// A drain waits for the stream that still runs, and says how much is left.
func TestDrainWaitsForTheLastStream(t *testing.T) {
	t.Parallel()
	p1 := startEngine(t, sim.Options{Name: "p1", Role: sim.RolePrefill})
	last := make(chan struct{})
	end := sync.OnceFunc(func() { close(last) })
	d1 := startEngine(t, sim.Options{Name: "d1", Role: sim.RoleDecode, Hook: func(e sim.Event) {
		if e.Phase == sim.PhaseStreamEvent && e.Index == 20 {
			<-last
		}
	}})
	t.Cleanup(end)
	p := serveProcess(t, urls(p1), urls(d1))
	stream := longStreams(t, p.addr, 1, 30)[0]
	out, err := p.ctl("ctl", "drain", d1.URL(), "--wait", "--timeout", "200ms")
	if err == nil || !strings.Contains(err.Error(), d1.URL()+" has not drained: the time of --timeout is over") || !strings.Contains(out, "1 request and 0 handles left") {
		t.Errorf("said %q, error %v", out, err)
	}
	if out := p.operate("status"); !strings.Contains(out, "up, draining") || !strings.Contains(out, "all decode engines are drained or disabled") {
		t.Errorf("status says %s", out)
	}
	if n := p.count("backend drained: its last request and handle have ended"); n != 0 {
		t.Error("the log says that it has drained")
	}
	end()
	if err := <-stream; err != nil {
		t.Errorf("the stream: %v", err)
	}
	p.await(1, "backend drained: its last request and handle have ended")
	eventually(t, "drained", func() bool { return strings.Contains(p.operate("status"), "up, drained") })
	p.operate("ctl", "enable", d1.URL())
	p.awaitReady()
	c := client{addr: p.addr}
	if _, err := c.ask("again", 3, true); err != nil {
		t.Error(err)
	}
}

// All engines are replaced under load over the admin port.
func TestAddAndRemoveUnderLoad(t *testing.T) {
	t.Parallel()
	engine := func(name string, role sim.Role) *sim.Engine {
		return startEngine(t, sim.Options{Name: name, Role: role, TokenLatency: time.Millisecond, MaxSeqs: 256})
	}
	p1, p2 := engine("p1", sim.RolePrefill), engine("p2", sim.RolePrefill)
	d1, d2 := engine("d1", sim.RoleDecode), engine("d2", sim.RoleDecode)
	p := serveProcess(t, urls(p1), urls(d1), "--health-slow-start", "0s")
	l := startTraffic(p.addr, 12)
	streams := longStreams(t, p.addr, 4, 500)
	p.operate("ctl", "add", p2.URL(), "--role", "prefill")
	p.operate("ctl", "add", d2.URL(), "--role", "decode", "--weight", "2")
	p.expectPool("decode", d1.URL()+" ready 1", d2.URL()+" ready 2")
	eventually(t, "the new ones are used", func() bool { return asked(p2, time.Time{}) > 0 && asked(d2, time.Time{}) > 0 })
	if out := p.operate("ctl", "remove", p1.URL(), d1.URL(), "--wait"); !strings.Contains(out, d1.URL()+": removed") {
		t.Errorf("ctl remove says %q", out)
	}
	_ = p1.Close()
	_ = d1.Close() // nobody needs them any more
	p.expectPools(p2.URL(), d2.URL())
	l.more(t, 60)
	l.end(t)
	for i, s := range streams {
		if err := <-s; err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	p.await(2, "backend has left: its last request and handle have ended")
	if n := p.metric(`xpyd_in_flight{backend="` + d1.URL()); n != 0 {
		t.Errorf("%v in flight on a backend that has left", n)
	}
	eventually(t, "no block pinned", func() bool { return p2.Ledger().Pinned == 0 })
	if got := p2.Ledger(); got.Pinned != 0 || got.FreedBy["lease"] != 0 || got.StaleReads != 0 {
		t.Errorf("%d blocks pinned, %v, %d stale reads", got.Pinned, got.FreedBy, got.StaleReads)
	}
}

// A backend that was removed can still be waited for, and its requests can be moved by force later on.
func TestRemovedBackendIsForcedLater(t *testing.T) {
	t.Parallel()
	slow := startEngine(t, sim.Options{Name: "d1", Role: sim.RoleDecode, PrefillTokensPerSecond: .01})
	other := startEngine(t, sim.Options{Name: "d2", Role: sim.RoleDecode})
	p := serveProcess(t, nil, urls(slow), "--health-slow-start", "0s")
	eventually(t, "up", func() bool { return p.metric("xpyd_backend_up") == 1 })
	got := make(chan error, 1)
	go func() {
		c := client{addr: p.addr}
		_, err := c.ask("never computed", 3, true)
		got <- err
	}()
	eventually(t, "the request is there", func() bool { return p.metric(`xpyd_in_flight{backend="`+slow.URL()) == 1 })
	p.operate("ctl", "add", other.URL(), "--role", "decode")
	rest := "removed; as decode it still has 1 request and 0 handles"
	host := strings.TrimPrefix(slow.URL(), "http://")
	if out := p.operate("ctl", "remove", host); !strings.Contains(out, rest) {
		t.Errorf("remove says %q", out)
	}
	out, err := p.ctl("ctl", "remove", host, "--wait", "--timeout", "200ms")
	if err == nil || !strings.Contains(err.Error(), "still serves requests: the time of --timeout is over") || !strings.Contains(out, rest) {
		t.Errorf("remove --wait says %q, %v", out, err)
	}
	for query, status := range map[string]int{"?force=false": 202, "?force=0": 202, "?force=maybe": 400} {
		if got, text := p.send("DELETE", "/backends/"+host+query, ""); got != status || status == 400 && !strings.Contains(text, `force: \"maybe\" must be true or false`) {
			t.Errorf("DELETE with %s: %d %s", query, got, text)
		}
	}
	if n := asked(other, time.Time{}); n != 0 {
		t.Errorf("force=false has moved %d requests", n)
	}
	p.operate("ctl", "remove", slow.URL(), "--force", "--wait")
	if err := <-got; err != nil {
		t.Error(err)
	}
	p.await(1, "backend has left: its last request and handle have ended")
	if _, err := p.ctl("ctl", "remove", host); err == nil || !strings.Contains(err.Error(), "there is no backend "+host) {
		t.Errorf("remove of what has left says %v", err)
	}
}

// An engine that serves both roles goes from one pool to the other and back, under load.
func TestRoleChangeUnderLoad(t *testing.T) {
	t.Parallel()
	engine := func(name string) *sim.Engine {
		return startEngine(t, sim.Options{Name: name, Role: sim.RoleBoth, TokenLatency: time.Millisecond, MaxSeqs: 256})
	}
	e1, e2, e3 := engine("e1"), engine("e2"), engine("e3")
	p := serveProcess(t, urls(e1, e2), urls(e3), "--health-slow-start", "0s", "--decode-policy", "round_robin", "--prefill-policy", "round_robin")
	l := startTraffic(p.addr, 12)
	for _, role := range []string{"decode", "prefill", "decode"} {
		p.operate("ctl", "role", e2.URL(), role, "--wait")
		changed := time.Now()
		eventually(t, "used as "+role, func() bool { return asked(e2, changed) > 5 })
	}
	p.expectPool("prefill", e1.URL()+" ready 1")
	p.expectPool("decode", e3.URL()+" ready 1", e2.URL()+" ready 1")
	l.more(t, 60)
	l.end(t)
	for _, e := range []*sim.Engine{e1, e2, e3} {
		eventually(t, e.Name()+" free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
		if got := e.Ledger(); got.Pinned != 0 || got.FreedBy["lease"] != 0 || got.StaleReads != 0 {
			t.Errorf("%s: %d blocks pinned, %v, %d stale reads", e.Name(), got.Pinned, got.FreedBy, got.StaleReads)
		}
	}
}

// The state file outlasts a restart, a hand-over and a reload.
func TestStateFileKeepsChanges(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	d2 := startEngine(t, sim.Options{Name: "d2", Role: sim.RoleDecode})
	d3 := startEngine(t, sim.Options{Name: "d3", Role: sim.RoleDecode})
	file := newPoolFile(t, urls(p1), urls(d1, d2))
	state := filepath.Join(t.TempDir(), "members.json")
	start := func() *process {
		p := startSelf(t, "serve", "--config", file.path, "--state-file", state)
		p.serving(1)
		p.awaitReady()
		return p
	}
	p := start()
	p.operate("ctl", "add", d3.URL(), "--role", "decode")
	p.operate("ctl", "disable", d2.URL())
	p.operate("ctl", "weight", d1.URL(), "2.5")
	want := []string{d1.URL() + " ready 2.5", d2.URL() + " disabled 1", d3.URL() + " ready 1"}
	p.expectPool("decode", want...)
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()

	p = start()
	p.expectPool("decode", want...)
	p.handOver(1)
	p.expectPool("decode", want...)
	file.pools(urls(p1), urls(d1))
	p.signal(p.serving(2), syscall.SIGHUP)
	l := p.await(1, "a run-time change is dropped")
	if edit, _ := l["edit"].(string); edit != d2.URL()+" is not in the configuration any more" {
		t.Errorf("the log says %q", edit)
	}
	p.await(1, reloaded)
	p.expectPool("decode", want[0], want[2])
	p.signal(p.serving(2), syscall.SIGTERM)
	p.gone()
}

// Without a state file the answer says that the change ends with the process, and it does.
func TestChangesWithoutStateFile(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	d2 := startEngine(t, sim.Options{Name: "d2", Role: sim.RoleDecode})
	p := serveProcess(t, urls(p1), urls(d1))
	status, body := p.send(http.MethodPost, "/backends", `{"url":"`+d2.URL()+`/","role":"decode"}`)
	var o struct {
		Backend struct {
			URL        string
			Role       string
			AdminState string `json:"admin_state"`
		}
		Note string
	}
	if err := json.Unmarshal([]byte(body), &o); err != nil || status != http.StatusCreated || o.Backend.URL != d2.URL() || o.Backend.AdminState != "ready" {
		t.Errorf("%d %s, %v", status, body, err)
	}
	if o.Note != "changes end with this process; set state_file to keep them" {
		t.Errorf("note %q", o.Note)
	}
	p.handOver(1)
	p.expectPool("decode", d1.URL()+" ready 1")
}

// Whoever may not change anything gets told why, and nothing changes.
func TestChangesThatAreRefused(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	p := serveProcess(t, urls(p1), urls(d1))
	host := strings.TrimPrefix(d1.URL(), "http://")
	drain := `{"state":"drain"}`
	for _, tc := range []struct {
		method, path, body string
		header             []string
		status             int
		want               string
	}{
		{"PATCH", "/backends/" + host, drain, []string{"Origin", "https://evil.example"}, 403, "another site"},
		{"PATCH", "/backends/" + host, drain, []string{"Sec-Fetch-Site", "cross-site"}, 403, "another site"},
		{"DELETE", "/backends/" + host, "", []string{"Origin", "null"}, 403, "another site"},
		{"PATCH", "/backends/" + host, drain, []string{"Host", "evil.example:8081"}, 403, "must be sent to localhost or to an address"},
		{"PATCH", "/backends/" + host, drain, []string{"Content-Type", "text/plain"}, 415, "application/json"},
		{"POST", "/reload", "", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "application/json"},
		{"PATCH", "/backends/127.0.0.1:1", drain, nil, 404, "there is no backend 127.0.0.1:1"},
		{"PATCH", "/backends/" + host, `{"wieght":2}`, nil, 400, "the nearest is weight"},
		{"PATCH", "/backends/" + host, `{"weight":0}`, nil, 400, "weight: must be above 0"},
		{"PATCH", "/backends/" + host, `{"weight":"2"}`, nil, 400, "weight"},
		{"PATCH", "/backends/" + host, `{"state":""}`, nil, 400, "state: is empty"},
		{"PATCH", "/backends/" + host, `{"state":"off"}`, nil, 400, "ready, drain or disabled"},
		{"PATCH", "/backends/" + host, `{}`, nil, 400, "nothing to change"},
		{"PATCH", "/backends/" + host, drain + drain, nil, 400, "one object only"},
		{"PATCH", "/backends/" + host, `{"url":"` + strings.Repeat("x", 70<<10) + `"}`, nil, 413, "too large"},
		{"POST", "/backends", `{"url":"` + d1.URL() + `","role":"decode"}`, nil, 409, "is in the decode pool already"},
		{"DELETE", "/backends/" + host, "", nil, 409, "is the last decode backend"},
		{"PUT", "/log-level", `{"level":"loud"}`, nil, 400, `level: \"loud\" must be debug, info, warn or error`},
		{"PUT", "/backends", drain, nil, 405, ""},
	} {
		status, body := p.send(tc.method, tc.path, tc.body, tc.header...)
		if status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s %.40s %v: %d %s, want %d %s", tc.method, tc.path, tc.body, tc.header, status, body, tc.status, tc.want)
		}
	}
	// The near one is named, whichever way it is asked.
	near := d1.URL()[:len(d1.URL())-1]
	if _, err := p.ctl("ctl", "drain", near); err == nil || !strings.Contains(err.Error(), "there is no backend "+near+"; the nearest is http://127.0.0.1:") {
		t.Errorf("ctl says %v", err)
	}
	p.expectPool("decode", d1.URL()+" ready 1")
	if status, body := p.send("PATCH", "/backends/"+host, `{"weight":2}`, "Origin", "http://"+p.admin); status != 200 {
		t.Errorf("the same site gets %d %s", status, body)
	}
}

func TestChangesNeedTheToken(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	token := writeFile(t, "token", "sesame\n", 0o600)
	p := serveProcess(t, urls(p1), urls(d1), "--admin-token-file", token)
	if _, err := p.ctl("ctl", "weight", d1.URL(), "2"); err == nil || !strings.Contains(err.Error(), "give --admin-token-file") {
		t.Errorf("without the token: %v", err)
	}
	if _, err := p.ctl("ctl", "weight", d1.URL(), "2", "--admin-token-file", writeFile(t, "token", "open\n", 0o600)); err == nil {
		t.Error("a wrong token does")
	}
	if status, body := p.send(http.MethodPost, "/reload", "{}"); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, body)
	}
	p.operate("ctl", "weight", d1.URL(), "2", "--admin-token-file", token)
	if out := p.operate("status", "--admin-token-file", token); !strings.Contains(out, d1.URL()) || !strings.Contains(out, "1 run-time change, kept until the process ends") {
		t.Errorf("status says %s", out)
	}
	p.operate("healthcheck", "--ready") // needs none
}

// A token that an operator takes out of the file is worth nothing after the next reload.
func TestReloadReplacesAdminTokens(t *testing.T) {
	t.Parallel()
	was, file := writeFile(t, "was", "s3cretA\n", 0o600), writeFile(t, "tokens", "anna s3cretA\n", 0o600)
	p := startAdmin(t, "--admin-token-file", file)
	if err := os.WriteFile(file, []byte("anna s3cretB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.operate("ctl", "reload", "--admin-token-file", was)
	if l := p.await(1, reloaded); !strings.Contains(fmt.Sprint(l["changes"]), "admin_token_file: its tokens") {
		t.Errorf("the log says %v", l)
	}
	if out, err := p.ctl("status", "--admin-token-file", was); err == nil {
		t.Errorf("a token that is revoked shows %s", out)
	}
	p.operate("status", "--admin-token-file", file)
}

// The level of the log changes by the admin port and by a reload. A reload says why it fails.
func TestReloadAndLogLevelOverTheAdminPort(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	d2 := startEngine(t, sim.Options{Name: "d2", Role: sim.RoleDecode})
	file := newPoolFile(t, urls(p1), urls(d1))
	text, err := os.ReadFile(file.path)
	if err != nil {
		t.Fatal(err)
	}
	p := startSelf(t, "serve", "--config", file.path)
	p.serving(1)
	p.awaitReady()
	if out := p.operate("ctl", "log-level", "error"); out != "error\n" {
		t.Errorf("log-level says %q", out)
	}
	file.pools(urls(p1), urls(d1, d2))
	if out := p.operate("ctl", "reload"); out != "reloaded\n" {
		t.Errorf("reload says %q", out)
	}
	p.expectPools(p1.URL(), d1.URL(), d2.URL())
	if p.count(reloaded) != 0 {
		t.Error("a line of level info was written")
	}
	file.text(string(text) + "log: {level: debug}\n") // the file's own level has changed
	p.operate("ctl", "reload")
	if out := p.operate("ctl", "log-level"); out != "debug\n" {
		t.Errorf("log-level says %q", out)
	}
	p.await(1, reloaded)
	for text, want := range map[string]string{
		"prefill: [":                   "config",
		string(text) + "pprof: true\n": "pprof changed",
	} {
		file.text(text)
		if _, err := p.ctl("ctl", "reload"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a faulty reload says %v, want %s", err, want)
		}
	}
	p.expectPools(p1.URL(), d1.URL())
}

func TestStatusAndHealthcheck(t *testing.T) {
	t.Parallel()
	p1, d1 := pairOfEngines(t, -1)
	p := serveProcess(t, urls(p1), urls(d1))
	eventually(t, "all up", func() bool { return p.metric("xpyd_backend_up") == 2 })
	one, two := p.operate("status"), p.operate("ctl", "status")
	for _, out := range []string{one, two} {
		lines := strings.Split(out, "\n")
		if lines[0] != "ok" || !strings.HasPrefix(lines[2], "ROLE ") || !strings.Contains(lines[3], p1.URL()) || !strings.Contains(lines[4], d1.URL()) || !strings.Contains(lines[4], " up ") {
			t.Errorf("status says\n%s", out)
		}
	}
	var page struct {
		Ready     bool
		Readiness string
		Backends  []struct{ URL string }
	}
	if err := json.Unmarshal([]byte(p.operate("status", "--json")), &page); err != nil || !page.Ready || page.Readiness != "ok" || len(page.Backends) != 2 {
		t.Errorf("%+v, %v", page, err)
	}
	p.operate("healthcheck")
	_ = d1.Close()
	eventually(t, "not ready", func() bool { _, err := p.ctl("healthcheck", "--ready"); return err != nil })
	if _, err := p.ctl("healthcheck", "--ready"); err == nil || !strings.Contains(err.Error(), "not ready: no decode engine is up") {
		t.Errorf("healthcheck says %v", err)
	}
	p.operate("healthcheck") // the process itself is well
	p.signal(p.serving(1), syscall.SIGTERM)
	p.gone()
	if _, err := p.ctl("healthcheck"); err == nil || !strings.Contains(err.Error(), "is xpyd running there") {
		t.Errorf("healthcheck of nothing says %v", err)
	}
	for _, args := range [][]string{{"status", "--admin", "ftp://x"}, {"ctl", "drain"}, {"ctl", "role", "x:1", "any"}, {"ctl", "nothing"}, {"ctl", "weight", "x:1", "heavy"}, {"ctl", "add", "http://x:1"}} {
		root := newRootCmd()
		root.SetArgs(args)
		var usage config.UsageError
		if err := root.ExecuteContext(t.Context()); !errors.As(err, &usage) {
			t.Errorf("%v: %v is no usage error", args, err)
		}
	}
}
