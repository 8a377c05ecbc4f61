package config

import (
	"slices"
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	const (
		both    = "--listen=127.0.0.1:1 --prefill=http://p:1 --decode=http://d:1"
		alone   = "--listen=127.0.0.1:1 --decode=http://d:1"
		noPool  = "has no effect: there is no prefill pool"
		noSplit = "has no effect: with pd.mode never no request gets a prefill"
	)
	for _, tc := range []struct {
		name, args string
		want       []string // the beginning of each
	}{
		{"defaults", both, nil},
		{"defaults, decode alone", alone, nil},
		{"an experimental connector", both + " --connector=mooncake", []string{`connector: "mooncake" is experimental: its engines had to be told their device; see docs/connectors.md`}},
		{"the same without prefill", alone + " --connector=mooncake", nil},
		{"checks that are too short for SGLang", both + " --connector=sglang", []string{`health.timeout: "2s" is too short for connector sglang, whose engines may take 2s over /health`, `connector: "sglang" is exp`}},
		{"checks that are long enough for SGLang", both + " --connector=sglang --health-timeout=5s", []string{`connector: "sglang" is exp`}},
		{"a connector that was run", both + " --connector=shared-storage", nil},
		{"auto without prefill", alone + " --pd-mode=auto --pd-threshold-tokens=9", []string{`pd.mode: "auto" ` + noPool, `pd.threshold_tokens: "9" ` + noPool}},
		{"a stall's weight without auto", both + " --pd-stall-weight=4", []string{`pd.stall_weight: "4" has no effect: it is for pd.mode auto`}},
		{"a stall's weight with auto", both + " --pd-mode=auto --pd-stall-weight=4", nil},
		{"auto with prefill", both + " --pd-mode=auto --pd-threshold-tokens=9 --routing-prefix-memory=8MiB", nil},
		{"prefill keys without prefill", alone + " --prefill-policy=random --prefill-max-in-flight=2 --decode-only-max-share=0.5 --decode-only-enabled=false", []string{
			`prefill_policy: "random" ` + noPool, `prefill_max_in_flight: "2" ` + noPool, `decode_only.enabled: "false" ` + noPool, `decode_only.max_share: "0.5" ` + noPool}},
		{"never with a threshold", both + " --pd-mode=never --pd-threshold-tokens=9", []string{
			`pd.threshold_tokens: "9" ` + noSplit, `prefill: its 1 backends get no request: pd.mode is never`}},
		{"never without prefill", alone + " --pd-mode=never", []string{`pd.mode: "never" ` + noPool}},
		{"memory that nobody uses", both + " --prefill-policy=least_request --routing-prefix-memory=8MiB", []string{`routing.prefix_memory: "8MiB" has no effect: it is for policy prefix`}},
		{"memory for consistent_hash", both + " --prefill-policy=consistent_hash --decode-policy=consistent_hash --routing-prefix-memory=8MiB", []string{`routing.prefix_memory: "8MiB" has no effect`}},
		{"memory for decode by default", alone + " --routing-prefix-memory=8MiB", nil},
		{"memory for decode with never", both + " --pd-mode=never --routing-prefix-memory=8MiB", []string{`prefill: its 1 backends get no request`}},
		{"memory for prefill's policy without prefill", alone + " --prefill-policy=cache_aware --decode-policy=random --routing-prefix-memory=8MiB", []string{
			`prefill_policy: "cache_aware" ` + noPool, `routing.prefix_memory: "8MiB" has no effect`}},
		{"memory for decode", alone + " --decode-policy=cache_aware --routing-prefix-memory=8MiB", nil},
		{"memory for a threshold", both + " --prefill-policy=random --pd-threshold-tokens=9 --routing-prefix-memory=8MiB", nil},
		{"no memory", both + " --decode-policy=cache_aware --routing-prefix-memory=0", []string{
			`prefill_policy: "prefix" is least_tokens: routing.prefix_memory is 0`, `decode_policy: "cache_aware" is least_tokens`}},
		{"no memory for decode by default", alone + " --routing-prefix-memory=0", []string{`decode_policy: "prefix" is least_tokens: routing.prefix_memory is 0`}},
		{"no memory, and none needed", both + " --prefill-policy=random --routing-prefix-memory=0", nil},
		{"queue without caps", both + " --queue-length=5", []string{`queue.length: "5" has no effect: without prefill_max_in_flight, decode_max_in_flight and encode_max_in_flight`}},
		{"wait without caps", both + " --queue-wait=9s", []string{`queue.wait: "9s" has no effect: without prefill_max_in_flight`}},
		{"queue with a share", both + " --queue-wait=9s --decode-only-max-share=0.5", nil},
		{"queue with a share that is off", both + " --queue-wait=9s --decode-only-max-share=0.5 --pd-mode=never", []string{`decode_only.max_share: "0.5" ` + noSplit, `queue.wait: "9s" has no effect`, `prefill: its 1 backends`}},
		{"queue with a cap", both + " --queue-length=5 --decode-max-in-flight=3", nil},
		{"share that is off", both + " --decode-only-enabled=false --decode-only-max-share=0.5", []string{`decode_only.max_share: "0.5" has no effect: decode_only.enabled is false`}},
		{"ejection that is off", both + " --health-eject-after=0 --health-eject-for=9s", []string{`health.eject_for: "9s" has no effect: with health.eject_after 0`}},
		{"short lease", both + " --kv-lease=25s", []string{`kv.lease: "25s" is too short for checks that notice an engine that stands still after up to 13s, more than half of it`}},
		{"short lease, and no handle that it holds", both + " --kv-lease=25s --connector=shared-storage", nil},
		{"short lease, quick checks", both + " --kv-lease=25s --health-fall=2", nil},
		{"short lease, decode alone", alone + " --kv-lease=25s", nil},
		{"slow checks", both + " --health-interval=1m", []string{`kv.lease: "30s" is too short for checks that notice an engine that stands still after up to 1m8s`}},
		{"pprof without a port", both + " --pprof --admin=", []string{`pprof: "true" has no effect: there is no admin port`}},
		{"lone weights", "--listen=127.0.0.1:1 --prefill=http://p:1_weight=2 --decode=http://d:1_weight=0.5", []string{
			`decode: "http://d:1" has a weight without effect`, `prefill: "http://p:1" has a weight without effect`}},
		{"files of TLS for nobody", both + " --backend-tls-server-name=d", []string{`backend_tls.server_name: "d" has no effect: no backend has an https:// URL`}},
		{"files of TLS for one", both + ",https://d:2 --backend-tls-server-name=d --timeouts-handshake=9s", nil},
		{"encode", both + " --encode=http://e:1", []string{"encode: is experimental"}},
		{"encode keys for nobody", both + " --timeouts-encode=9s --encode-max-in-flight=3", []string{`encode_max_in_flight: "3" has no effect: there is no encode pool`, `timeouts.encode: "9s" has no effect`}},
		{"weights", "--listen=127.0.0.1:1 --prefill=http://p:1_weight=2,http://p:2 --decode=http://d:1", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := strings.Fields(tc.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "_weight", " weight")
			}
			c, err := load(t, args, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := Warnings(c)
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
