package sim_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// edited returns handle with some members replaced. A nil value drops the member.
func edited(t *testing.T, handle json.RawMessage, edits map[string]string) json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	decodeJSON(t, handle, &m)
	for name, value := range edits {
		if value == "" {
			delete(m, name)
		} else {
			m[name] = json.RawMessage(value)
		}
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestHandleUsedTwiceIsWrongTextWithStatus200(t *testing.T) {
	p, d := pair(t, sim.Options{})
	d2 := start(t, sim.Options{Role: sim.RoleDecode, Name: "d2"})
	handle := prefill(t, p, completionsPath, textBody)
	b := textBody.with("kv_transfer_params", handle)
	want := sim.Text(textBody["prompt"].(string), 9)
	if _, answer := post(t, d.URL()+completionsPath, b); text(t, answer) != want {
		t.Fatalf("first use: %s", answer)
	}
	for i, e := range []*sim.Engine{d, d2} {
		status, answer := post(t, e.URL()+completionsPath, b)
		if got := text(t, answer); status != 200 || got == want || !strings.Contains(got, "WRONG-KV") {
			t.Errorf("second use on %s: %d %q", e.Name(), status, got)
		}
		all := e.Requests()
		if last := all[len(all)-1]; last.HandleReuse != (i == 0) || !last.WrongKV {
			t.Errorf("record of %s: reuse %v, wrong %v", e.Name(), last.HandleReuse, last.WrongKV)
		}
	}
	if n := p.Ledger().StaleReads; n != 2 {
		t.Errorf("%d stale reads, want 2", n)
	}
}

func TestExpiredHandleIsWrongText(t *testing.T) {
	p, d := pair(t, sim.Options{Lease: 30 * time.Millisecond})
	handle := prefill(t, p, completionsPath, textBody)
	awaitFreed(t, p, "lease", 1)
	status, answer := post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
	if status != 200 || !strings.Contains(text(t, answer), "WRONG-KV") {
		t.Errorf("%d %s", status, answer)
	}
}

func TestHandleOfAnotherPromptIsWrongText(t *testing.T) {
	p, d := pair(t, sim.Options{})
	handle := prefill(t, p, completionsPath, textBody.with("prompt", "quite another prompt of the same size, more or less, it is"))
	status, answer := post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
	if status != 200 || !strings.Contains(text(t, answer), "WRONG-KV") {
		t.Errorf("%d %s", status, answer)
	}
	awaitFreed(t, p, "read", 1)
}

func TestHandlesThatKill(t *testing.T) {
	cases := map[string]map[string]string{
		"no block ids":     {"remote_block_ids": ""},
		"null block ids":   {"remote_block_ids": "null"},
		"empty block ids":  {"remote_block_ids": "[]"},
		"empty group":      {"remote_block_ids": "[[]]"},
		"too few blocks":   {"remote_block_ids": "[[1]]"},
		"block ids flat":   {"remote_block_ids": "[1,2,3,4,5,6,7]"},
		"the flag alone":   nil,
		"alone, no model":  nil,
		"alone, max_tok 0": nil,
	}
	long := textBody.with("prompt", strings.Repeat("a prompt of several blocks, ", 8))
	for name, edits := range cases {
		t.Run(name, func(t *testing.T) {
			p, d := pair(t, sim.Options{})
			b := long.with("kv_transfer_params", edited(t, prefill(t, p, completionsPath, long), edits))
			wantStatus := 0
			if edits == nil {
				b = b.with("kv_transfer_params", json.RawMessage(`{"do_remote_prefill":true}`))
			}
			if name == "alone, no model" {
				b, wantStatus = b.with("model", "nope"), 404
			}
			if name == "alone, max_tok 0" {
				b, wantStatus = b.with("max_tokens", 0), 400
			}
			status, answer, err := tryPost(d.URL()+completionsPath, b)
			if wantStatus == 0 && err == nil || wantStatus != 0 && status != wantStatus {
				t.Errorf("answered %d %s (%v), want status %d and a dead engine", status, answer, err, wantStatus)
			}
			<-d.Died()
			if resp, err := http.Get(d.URL() + "/health"); err == nil {
				_ = resp.Body.Close()
				t.Errorf("a dead engine's health: %d", resp.StatusCode)
			}
		})
	}
}

func TestDeathTakesRunningRequestsAlong(t *testing.T) {
	hold := newBarrier("d1", sim.PhaseStreamEvent)
	_, d := pair(t, sim.Options{Hook: hold.hook, TokenLatency: time.Hour})
	c := send(t, d, completionsPath, textBody.with("stream", true))
	<-hold.reached
	close(hold.pass)
	_, _, err := tryPost(d.URL()+completionsPath, textBody.with("kv_transfer_params", json.RawMessage(`{"do_remote_prefill":true}`)))
	if err == nil {
		t.Error("the killing request was answered")
	}
	if got := c.readAll(); strings.Contains(got, "[DONE]") || strings.HasSuffix(got, "0\r\n\r\n") {
		t.Errorf("the other stream ended cleanly: %q", got)
	}
	if err := d.Restart(); err != nil {
		t.Fatal(err)
	}
	expectAlive(t, d)
}

func TestHandlesThatHang(t *testing.T) {
	cases := map[string]map[string]string{
		"no request id":    {"remote_request_id": ""},
		"no host":          {"remote_host": ""},
		"no port":          {"remote_port": ""},
		"port a string":    {"remote_port": `"5600"`},
		"no engine id":     {"remote_engine_id": ""},
		"engine id null":   {"remote_engine_id": "null"},
		"request id a num": {"remote_request_id": "5"},
	}
	for name, edits := range cases {
		t.Run(name, func(t *testing.T) {
			p, d := pair(t, sim.Options{Lease: 200 * time.Millisecond})
			handle := edited(t, prefill(t, p, completionsPath, textBody), edits)
			c := send(t, d, completionsPath, textBody.with("kv_transfer_params", handle))
			awaitFreed(t, p, "lease", 1)
			await(t, "the hanging one waits", func() bool { return gauge(t, d, "vllm:num_requests_waiting") == 1 })
			c.leave()
			if edits["remote_engine_id"] != "" || name == "no engine id" {
				<-d.Died()
				return
			}
			awaitOutcome(t, d, "hung")
			expectAlive(t, d)
		})
	}
}

func TestHandlesThatFailCleanly(t *testing.T) {
	cases := map[string]map[string]string{
		"foreign engine":           {"remote_engine_id": `"no-such-engine"`},
		"closed port":              {"remote_engine_id": `"no-such-engine"`, "remote_port": "1"},
		"block ids out of range":   {"remote_block_ids": `[[90001,90002,90003]]`},
		"host that does not exist": {"remote_host": `"127.0.0.1.invalid:x"`},
	}
	for name, edits := range cases {
		for path, b := range map[string]body{completionsPath: textBody, "/v1/chat/completions": chatBody} {
			for _, stream := range []bool{false, true} {
				t.Run(name+path+strconv.FormatBool(stream), func(t *testing.T) {
					t.Parallel()
					p, d := pair(t, sim.Options{Lease: 500 * time.Millisecond, HandshakeTimeout: 50 * time.Millisecond})
					handle := edited(t, prefill(t, p, path, b), edits)
					status, answer := post(t, d.URL()+path, b.with("stream", stream).with("kv_transfer_params", handle))
					expectLoadFailure(t, status, answer, stream, path != completionsPath)
					expectAlive(t, d)
					awaitFreed(t, p, "lease", 1)
				})
			}
		}
	}
}

func expectLoadFailure(t *testing.T, status int, answer []byte, stream, chat bool) {
	t.Helper()
	if !stream {
		if status != 500 || !strings.Contains(string(answer), `"type":"InternalServerError"`) {
			t.Errorf("%d %s, want 500", status, answer)
		}
		return
	}
	got := events(answer)
	if chat && len(got) > 0 {
		if !strings.Contains(got[0], `"role":"assistant"`) {
			t.Errorf("first event %s, want the role", got[0])
		}
		got = got[1:]
	}
	if status != 200 || len(got) != 2 || !strings.HasPrefix(got[0], `{"error": {`) || got[1] != "[DONE]" {
		t.Errorf("%d %q, want an error event and [DONE]", status, got)
	}
}

func TestHandleMembersThatDoNotMatter(t *testing.T) {
	for _, name := range []string{"tp_size", "dcp_size", "pp_size", "remote_num_tokens", "transfer_mode", "remote_blocks_expiry_time"} {
		t.Run(name, func(t *testing.T) {
			p, d := pair(t, sim.Options{})
			handle := edited(t, prefill(t, p, completionsPath, textBody), map[string]string{name: ""})
			status, answer := post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
			if status != 200 || text(t, answer) != sim.Text(textBody["prompt"].(string), 9) {
				t.Errorf("%d %s", status, answer)
			}
			awaitFreed(t, p, "read", 1)
		})
	}
}

func TestHandlesThatAreIgnoredLeaveTheBlocksToTheLease(t *testing.T) {
	for name, edits := range map[string]map[string]string{
		"do_remote_prefill missing": {"do_remote_prefill": ""},
		"unknown request id":        {"remote_request_id": `"cmpl-nobody"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, d := pair(t, sim.Options{Lease: 2 * time.Second}) // decode has to read within it
			handle := edited(t, prefill(t, p, completionsPath, textBody), edits)
			status, answer := post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
			if status != 200 || text(t, answer) != sim.Text(textBody["prompt"].(string), 9) {
				t.Errorf("%d %s", status, answer)
			}
			awaitFreed(t, p, "lease", 1)
		})
	}
}

func TestPrefillEngineDiesAfterItsAnswer(t *testing.T) {
	const unknownPeer = 150 * time.Millisecond
	for _, policy := range []string{"fail", "recompute"} {
		for _, known := range []bool{true, false} {
			for _, restarted := range []bool{false, true} {
				t.Run(policy+"/known="+strconv.FormatBool(known)+"/restarted="+strconv.FormatBool(restarted), func(t *testing.T) {
					p, d := pair(t, sim.Options{LoadFailure: policy, HandshakeTimeout: unknownPeer})
					if known {
						h := prefill(t, p, completionsPath, textBody)
						post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", h))
					}
					handle := prefill(t, p, completionsPath, textBody)
					p.Kill()
					if restarted {
						if err := p.Restart(); err != nil {
							t.Fatal(err)
						}
					}
					begin := time.Now()
					status, answer := post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
					if took := time.Since(begin); !known && !restarted && took < unknownPeer {
						t.Errorf("gave up an unknown peer after %v, before %v", took, unknownPeer)
					}
					if policy == "fail" {
						expectLoadFailure(t, status, answer, false, false)
					} else if text(t, answer) != sim.Text(textBody["prompt"].(string), 9) {
						t.Errorf("recomputed: %d %s", status, answer)
					}
					expectAlive(t, d)
				})
			}
		}
	}
}

func TestKnownPeerThatDiedFailsAtOnce(t *testing.T) {
	p, d := pair(t, sim.Options{HandshakeTimeout: 20 * time.Second})
	handle := prefill(t, p, completionsPath, textBody)
	post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
	p.Kill()
	begin := time.Now()
	for range 2 { // over the connection that broke, and over a new one
		status, answer := post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
		expectLoadFailure(t, status, answer, false, false)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestFrozenPrefillEngineHangsDecode(t *testing.T) {
	p, d := pair(t, sim.Options{HandshakeTimeout: 20 * time.Millisecond})
	handle := prefill(t, p, completionsPath, textBody)
	p.Freeze()
	c := send(t, d, completionsPath, textBody.with("kv_transfer_params", handle))
	await(t, "it waits for its KV", func() bool { return gauge(t, d, "vllm:num_requests_waiting") == 1 })
	c.leave()
	awaitOutcome(t, d, "aborted")
	if n := gauge(t, d, "vllm:kv_cache_usage_perc"); n == 0 {
		t.Error("the decode engine freed its own blocks while the transfer is in flight")
	}
	p.Thaw()
	awaitFreed(t, p, "abort", 1)
	await(t, "the decode engine's blocks free", func() bool { return gauge(t, d, "vllm:kv_cache_usage_perc") == 0 })
}

func TestFrozenEngineAnswersNothing(t *testing.T) {
	_, d := pair(t, sim.Options{})
	d.Freeze()
	client := http.Client{Timeout: 50 * time.Millisecond}
	if resp, err := client.Get(d.URL() + "/health"); err == nil {
		_ = resp.Body.Close()
		t.Errorf("a frozen engine answered %d", resp.StatusCode)
	}
	d.Thaw()
	expectAlive(t, d)
}

func TestEnginesOfDifferentKindsDoNotShareKV(t *testing.T) {
	for name, o := range map[string]sim.Options{
		"version":    {Version: "0.33.0"},
		"block size": {BlockSize: 32},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, sim.Options{Role: sim.RolePrefill})
			o.Role = sim.RoleDecode
			d := start(t, o)
			handle := prefill(t, p, completionsPath, textBody)
			status, answer := post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
			expectLoadFailure(t, status, answer, false, false)
		})
	}
}

func TestPlainEngineIgnoresHandles(t *testing.T) {
	plain := start(t, sim.Options{})
	status, answer := post(t, plain.URL()+completionsPath, textBody.with("kv_transfer_params", json.RawMessage(`{"do_remote_prefill":true}`)))
	if status != 200 || text(t, answer) != sim.Text(textBody["prompt"].(string), 9) {
		t.Errorf("%d %s", status, answer)
	}
}

// gauge reads one sample without labels of its own from /metrics.
func gauge(t *testing.T, e *sim.Engine, name string, more ...string) float64 {
	t.Helper()
	series := name + `{engine="0",model_name="sim"` + strings.Join(append([]string{""}, more...), ",") + "} "
	resp, err := http.Get(e.URL() + "/metrics")
	if err != nil {
		t.Fatalf("metrics of %s: %v", e.Name(), err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, series); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no %s in the metrics of %s", name, e.Name())
	return 0
}
