package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"xpyd/tools/process"
)

// freeTime is how soon after a client's end every KV block must be free. A lease lasts 30 s.
const freeTime = 15 * time.Second

// ledger is the part of an engine's /sim/ledger that is read.
type ledger struct {
	Pinned     int            `json:"pinned"`
	FreedBy    map[string]int `json:"freed_by"`
	StaleReads int            `json:"stale_reads"`
}

// record is the part of an engine's /sim/requests that is read.
type record struct {
	RequestID   string `json:"request_id"`
	Outcome     string `json:"outcome"`
	HandleReuse bool   `json:"handle_reuse"`
	WrongKV     bool   `json:"wrong_kv"`
}

// inspect asks engines and xpyd what they saw of the client. If the client did not count its
// completions itself, inspect puts xpyd's count into t.
func (f *fleet) inspect(ctx context.Context, t *tally) (failures []string) {
	add := func(err error) {
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	if f.vllm {
		add(f.inspectVLLM(ctx))
	}
	for _, url := range f.simulated() {
		add(inspectLedger(ctx, url))
		add(inspectRecords(ctx, url))
	}
	ended, err := f.completions(ctx)
	// xpyd counts a completion after the client has its last byte.
	for end := time.Now().Add(freeTime); err == nil && ended["ok"] < t.requests && time.Now().Before(end); ended, err = f.completions(ctx) {
		time.Sleep(20 * time.Millisecond)
	}
	add(err)
	if t.requests == 0 {
		for _, n := range ended {
			t.requests += n
		}
		return failures
	}
	if ended["ok"] < t.requests {
		add(fmt.Errorf("the client counts %d requests, xpyd %v completions", t.requests, ended))
	}
	for outcome, n := range ended {
		if outcome != "ok" && n > 0 {
			add(fmt.Errorf("xpyd counts %d completions with outcome %s", n, outcome))
		}
	}
	return failures
}

// inspectLedger expects that all blocks are free, none of them by its lease, and that each handle
// was read once.
func inspectLedger(ctx context.Context, url string) error {
	var l ledger
	for end := time.Now().Add(freeTime); ; time.Sleep(20 * time.Millisecond) {
		l = ledger{}
		if err := getJSON(ctx, url+"/sim/ledger", &l); err != nil {
			return err
		}
		if l.Pinned == 0 || time.Now().After(end) {
			break
		}
	}
	if l.Pinned > 0 || l.StaleReads > 0 || l.FreedBy["lease"] > 0 {
		return fmt.Errorf("engine %s: %d blocks pinned, %d stale reads, %d handles freed by their lease; want none", url, l.Pinned, l.StaleReads, l.FreedBy["lease"])
	}
	return nil
}

func inspectRecords(ctx context.Context, url string) error {
	var all []record
	if err := getJSON(ctx, url+"/sim/requests", &all); err != nil {
		return err
	}
	for _, r := range all {
		// The engine plays a fault before it looks at the handle, so none was used.
		if r.HandleReuse && !strings.HasPrefix(r.Outcome, "fault:") || r.WrongKV {
			return fmt.Errorf("engine %s, request %s: handle used twice %v, wrong text %v", url, r.RequestID, r.HandleReuse, r.WrongKV)
		}
	}
	return nil
}

// simulated are the engines with a ledger.
func (f *fleet) simulated() []string {
	if f.vllm {
		return nil
	}
	return append(append([]string{}, f.prefill...), f.decode...)
}

// completions reads xpyd_requests_total, by outcome.
func (f *fleet) completions(ctx context.Context) (map[string]int, error) {
	page, err := process.PageOf(ctx, f.admin)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for outcome, n := range page.By("xpyd_requests_total", "outcome") {
		counts[outcome] = int(n)
	}
	return counts, nil
}

func getJSON(ctx context.Context, url string, into any) error {
	body, err := get(ctx, url)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	return nil
}
