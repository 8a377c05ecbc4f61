package handoff_test

import (
	"testing"
	"time"

	"xpyd/engines/handoff"
	"xpyd/kvparams"
)

// Only the legs that must go on without their client do, and those of decode for 10 s at most.
func TestGraces(t *testing.T) {
	const prefill, prefillAbort, decodeAbort = time.Minute, time.Second, 2 * time.Second
	for name, want := range map[string]handoff.Grace{
		"nixl":           {Prefill: prefillAbort, Decode: decodeAbort},
		"nixl-push":      {Prefill: prefillAbort, Decode: 10 * time.Second},
		"mooncake":       {Prefill: prefill, Decode: 10 * time.Second, Finishes: true},
		"shared-storage": {Prefill: prefillAbort, Decode: decodeAbort},
		"lmcache":        {Prefill: prefill, Decode: 10 * time.Second},
		"offloading-p2p": {Prefill: prefillAbort, Decode: decodeAbort},
		"sglang":         {Prefill: prefillAbort, Decode: decodeAbort},
	} {
		d, ok := kvparams.Lookup(name)
		if !ok {
			t.Fatalf("no connector %s", name)
		}
		if got := handoff.GraceOf(d, prefill, prefillAbort, decodeAbort); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if got := handoff.GraceOf(d, prefill, prefillAbort, time.Minute).Decode; got != time.Minute {
			t.Errorf("%s: decode has %v, and timeouts.decode_abort_grace is longer", name, got)
		}
	}
}
