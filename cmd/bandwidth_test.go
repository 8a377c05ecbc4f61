package cmd

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// TestCheckBandwidth: a simulated engine moves 32 KiB a block of 16 tokens, in the time that it is
// told to take.
func TestCheckBandwidth(t *testing.T) {
	t.Parallel()
	prefill := startSim(t, sim.Options{Role: sim.RolePrefill, MaxModelLen: 4096})
	decode := startSim(t, sim.Options{Role: sim.RoleDecode, MaxModelLen: 4096, TransferPerBlock: time.Millisecond})
	out, err := runCheck("--bandwidth", "--prefill", prefill.URL(), "--decode", decode.URL())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rows := regexp.MustCompile(`(?m)^\S+ +\S+ +(256|1024|4096|16384) +(\S+) +(\S+) +(\S+) +\d+ +\d+$`).FindAllStringSubmatch(out, -1)
	if len(rows) != 2 || rows[0][1] != "256" || rows[0][2] != "0.5" || rows[1][1] != "1024" || rows[1][2] != "2.1" {
		t.Fatalf("got %q in\n%s\nwant 0.5 MB for 256 tokens and 2.1 MB for 1024; 4096 do not fit", rows, out)
	}
	for _, row := range rows {
		if ms := row[3]; strings.HasPrefix(ms, "0") || strings.Contains(row[4], "-") {
			t.Errorf("row %q has no time or no speed", row)
		}
	}
	expectFreed(t, prefill, "read")
	for gbps, fails := range map[string]bool{"10": true, "0.000001": false} {
		out, err := runCheck("--bandwidth", "--kv-transfer-gbps", gbps, "--prefill", prefill.URL(), "--decode", decode.URL())
		if slow := strings.Contains(out, "GB/s, and kv.transfer_gbps is 10: "); slow != fails || (err != nil) != fails {
			t.Errorf("at least %s GB/s: %v\n%s", gbps, err, out)
		}
	}
	if _, err := runCheck("--bandwidth", "--prefill", prefill.URL(), "--decode", startSim(t, sim.Options{Role: "both"}).URL()); err == nil {
		t.Error("a decode engine without a connector fits")
	}
}

// TestCheckBandwidthOnABusyEngine: another transfer in between leaves no figure.
func TestCheckBandwidthOnABusyEngine(t *testing.T) {
	for jump, want := range map[int]string{1: `\s256\s+0\.1\s`, 2: `\s256\s+busy\s`, 0: `counts no transfer|shows no vllm:nixl`} {
		prefill, decode := newStub(), newStub()
		decode.jump = jump
		out, _ := runCheck("--bandwidth", "--prefill", prefill.start(t), "--decode", decode.start(t))
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%d transfers a request: want %s in\n%s", jump, want, out)
		}
	}
}
