package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xpyd/tools/soak"
)

// shortSoak is a run that a test can wait for, with this test's binary as the proxy.
func shortSoak(t *testing.T, settings map[string]any) soak.Options {
	t.Helper()
	return soak.Options{
		Duration: 4 * time.Second, Streams: 12, Events: 10, Seed: 1, Artefacts: t.TempDir(),
		Serve: []string{"env", actAsProgram + "=1", testBinary(t), "serve"}, Settings: settings,
	}
}

// goroutinesOf returns what the proxy's goroutines did at the end of a run that failed. The run's directory goes with
// its test.
func goroutinesOf(o soak.Options) []byte {
	text, err := os.ReadFile(filepath.Join(o.Artefacts, "goroutines-end.txt"))
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// Four seconds hold every stage: faults, reloads, hand-overs.
func TestSoakOfAMoment(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	o := shortSoak(t, nil)
	var out bytes.Buffer
	if err := soak.Run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &out, goroutinesOf(o))
	}
	for _, want := range []string{"nothing lost, nothing leaked", "kill", "hand-over", "reload failed", "I10 logs     ok"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, &out)
		}
	}
	if left, err := os.ReadDir(o.Artefacts); err != nil || len(left) > 0 {
		t.Errorf("a good run leaves %v, error %v", left, err)
	}
}

// The same over TLS, with certificates that are replaced meanwhile and one that must be refused.
func TestSoakOfAMomentOverTLS(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	o := shortSoak(t, nil)
	o.TLS = true
	var out bytes.Buffer
	if err := soak.Run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &out, goroutinesOf(o))
	}
	for _, want := range []string{"nothing lost, nothing leaked", "certificates replaced", "certificates refused", "hand-over"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, &out)
		}
	}
	if left, err := os.ReadDir(o.Artefacts); err != nil || len(left) > 0 {
		t.Errorf("a good run leaves %v, error %v", left, err)
	}
}

// A proxy that cuts requests short fails them although nothing is wrong with any engine. The soak
// must say so, fail, and leave what is needed to investigate.
func TestSoakFailsAndKeepsTheEvidence(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	o := shortSoak(t, map[string]any{"timeouts": map[string]any{"request": "200ms"}})
	var out bytes.Buffer
	err := soak.Run(t.Context(), o, &out)
	if err == nil || !strings.Contains(out.String(), "requests that fail in stage standard") {
		t.Fatalf("error %v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "I1 outcomes  BROKEN") || strings.Contains(out.String(), "nothing lost") {
		t.Errorf("report:\n%s", &out)
	}
	var verdict struct {
		Seed     uint64
		Breaches []struct{ What, First string }
	}
	text, err := os.ReadFile(filepath.Join(o.Artefacts, "verdict.json"))
	if err == nil {
		err = json.Unmarshal(text, &verdict)
	}
	if err != nil || verdict.Seed != 1 || len(verdict.Breaches) == 0 {
		t.Errorf("verdict %+v, error %v", verdict, err)
	}
	for name, want := range map[string]string{
		"faults.jsonl": `"kind":"kill"`, "proxy.log": `"message":"serving"`,
		"goroutines-end.txt": "goroutine profile", "metrics-end.txt": "xpyd_in_flight",
	} {
		if text, err := os.ReadFile(filepath.Join(o.Artefacts, name)); err != nil || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s holds no %s, error %v", name, want, err)
		}
	}
}
