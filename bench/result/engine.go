package result

// Engine is the growth of an engine's own counters from the beginning of a run to its end. A figure
// that the engine does not have is nil, and not 0.
type Engine struct {
	Name      string  `json:"name"`
	Role      string  `json:"role,omitempty"` // "prefill", "decode"; "" for both
	URL       string  `json:"url"`
	Version   string  `json:"version,omitempty"` // "" where it does not say
	GPUs      float64 `json:"gpus,omitempty"`    // 0: not known
	Failed    int     `json:"failed_reads,omitempty"`
	Problem   string  `json:"problem,omitempty"`   // why figures are missing
	Restarted bool    `json:"restarted,omitempty"` // the counters started again, so there are none

	Computed    *float64 `json:"computed_tokens"` // of prompts
	Hit         *float64 `json:"hit_tokens"`      // of prompts, found in its prefix cache
	Queried     *float64 `json:"queried_tokens"`  // of prompts, looked for there
	Pulled      *float64 `json:"pulled_tokens"`   // of prompts, brought by the KV connector
	Generated   *float64 `json:"generated_tokens"`
	Preemptions *float64 `json:"preemptions"`

	Transfers       *float64 `json:"kv_transfers"`
	TransferBytes   *float64 `json:"kv_transfer_bytes"`
	TransferSeconds *float64 `json:"kv_transfer_seconds"` // of all together, though some ran at once
	TransferFailed  *float64 `json:"kv_transfers_failed"`

	KVBlocks      *float64 `json:"kv_blocks,omitempty"` // of its cache, of all ranks
	KVBlockTokens *float64 `json:"kv_block_tokens,omitempty"`
	KVBytes       *float64 `json:"kv_bytes,omitempty"` // of the cache, about, by the bytes of transferred tokens

	PeakRunning *float64 `json:"peak_running"` // of the readings within the run, the first after 250 ms; nil if it was shorter
	PeakWaiting *float64 `json:"peak_waiting"`
	PeakUsage   *float64 `json:"peak_kv_usage"` // of its KV blocks, 0 to 1
}

// TransferMS is the mean time of a KV transfer; ok is false if that is not known.
func (e *Engine) TransferMS() (ms float64, ok bool) {
	if e.TransferSeconds == nil || e.Transfers == nil || *e.Transfers == 0 {
		return 0, false
	}
	return *e.TransferSeconds / *e.Transfers * 1000, true
}

// TransferGBps is the mean speed of one KV transfer in 10⁹ bytes a second; ok is false if that is
// not known.
func (e *Engine) TransferGBps() (speed float64, ok bool) {
	if e.TransferSeconds == nil || e.TransferBytes == nil || *e.TransferSeconds == 0 {
		return 0, false
	}
	return *e.TransferBytes / *e.TransferSeconds / 1e9, true
}
