package report

import (
	"slices"
	"testing"

	"xpyd/bench/result"
)

func TestEngineNotes(t *testing.T) {
	is := func(x float64) *float64 { return &x }
	prefill := result.Engine{Name: "P1", Role: "prefill", Version: "0.32.0", Computed: is(10240), Hit: is(0), Pulled: is(0), Generated: is(10), Preemptions: is(0), PeakUsage: is(0.256), Transfers: is(0),
		KVBlocks: is(8192), KVBlockTokens: is(16), KVBytes: is(3 << 30)}
	decode := result.Engine{Name: "D1", Role: "decode", Computed: is(0), Hit: is(0), Pulled: is(10240), Generated: is(1280),
		Transfers: is(10), TransferBytes: is(1.5e9), TransferSeconds: is(0.06), TransferFailed: is(2)}
	got := engineNotes([]result.Engine{prefill, decode, {Name: "D2", Problem: "not read when the run began: refused"}, {Name: "X", Restarted: true}})
	want := []string{
		"engine P1, prefill, vLLM 0.32.0: prompt tokens computed 10240, found in its prefix cache 0, pulled 0, generated 10, preemptions 0, KV cache of 8192 blocks of 16 tokens, about 3 GiB, at most 25.6 % full when read",
		"engine D1, decode: prompt tokens computed 0, found in its prefix cache 0, pulled 10240, generated 1280, preemptions unknown, 10 KV transfers of 1.5 GB in all, 6.00 ms each at 25 GB/s, 2 failed",
		"engine D2: unknown, not read when the run began: refused",
		"engine X: unknown, it restarted during the run",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	decode.Pulled = is(0)
	if got := engineNotes([]result.Engine{prefill, decode}); len(got) != 3 {
		t.Errorf("decode pulled nothing of what prefill computed, and nobody says so: %q", got)
	}
}
