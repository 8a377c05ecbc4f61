package sim_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// twoRanks starts a server with two ranks of the role.
func twoRanks(t *testing.T, role sim.Role) (*sim.Ranks, []*sim.Engine) {
	t.Helper()
	var ranks []*sim.Engine
	for n := range 2 {
		ranks = append(ranks, start(t, sim.Options{Role: role, Name: fmt.Sprint("rank", n), HandshakeTimeout: 200 * time.Millisecond}))
	}
	front, err := sim.StartRanks(ranks[0].URL(), ranks[1].URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = front.Close() })
	return front, ranks
}

const rankHeader = "X-data-parallel-rank"

// Blocks belong to the rank that computed them. Decode that asks another rank for them gets nothing, and
// they stay with the first until it is asked.
func TestPullFromTheWrongRankIsRefused(t *testing.T) {
	front, ranks := twoRanks(t, sim.RolePrefill)
	d := start(t, sim.Options{Role: sim.RoleDecode, HandshakeTimeout: 200 * time.Millisecond})
	b := body{"prompt": strings.Repeat("wrong rank ", 20), "max_tokens": 3}
	status, raw := post(t, front.URL()+"/v1/completions", b.with("max_tokens", 1).with("kv_transfer_params", json.RawMessage(prefillFlags)), rankHeader, "1")
	if status != 200 {
		t.Fatalf("status %d: %s", status, raw)
	}
	var answer struct {
		Handle json.RawMessage `json:"kv_transfer_params"`
	}
	decodeJSON(t, raw, &answer)
	if a, b := ranks[0].Ledger().Pinned, ranks[1].Ledger().Pinned; a != 0 || b == 0 {
		t.Fatalf("%d and %d blocks are pinned", a, b)
	}
	_, port, _ := strings.Cut(ranks[0].SideChannelAddr(), ":")
	other := edited(t, answer.Handle, map[string]string{"remote_port": port})
	if status, got := post(t, d.URL()+"/v1/completions", b.with("kv_transfer_params", other)); status == 200 {
		t.Errorf("rank 0 gave the blocks of rank 1: %s", got)
	}
	if n := ranks[0].Ledger(); n.FreedBy["read"] != 0 {
		t.Errorf("rank 0 had a reader: %v", n.FreedBy)
	}
	if ranks[1].Ledger().Pinned == 0 {
		t.Error("rank 1 has lost the blocks")
	}
	status, got := post(t, d.URL()+"/v1/completions", b.with("kv_transfer_params", answer.Handle))
	if status != 200 || strings.Contains(text(t, got), "WRONG") {
		t.Errorf("status %d: %s", status, got)
	}
	awaitFreed(t, ranks[1], "read", 1)
}

// The health of the port is that of all ranks. A rank that is stuck does not show there, and not one page of
// metrics waits for it. One that has died does, whichever rank is asked for.
func TestHealthOfRanks(t *testing.T) {
	front, ranks := twoRanks(t, sim.RoleDecode)
	get := func(path string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, front.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		req.Header.Set(rankHeader, "1")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(page)
	}
	both := func() bool {
		_, page := get("/metrics")
		return strings.Contains(page, `engine="0"`) && strings.Contains(page, `engine="1"`)
	}
	if status, _ := get("/health"); status != 200 || !both() {
		t.Errorf("status %d, both ranks on the page: %v", status, both())
	}
	ranks[0].Freeze()
	if status, _ := get("/health"); status != 200 || !both() {
		t.Errorf("with a rank that is stuck: status %d, both ranks on the page: %v", status, both())
	}
	ranks[0].Thaw()
	ranks[0].Kill()
	if status, _ := get("/health"); status != 503 {
		t.Errorf("status %d with a dead rank", status)
	}
}
