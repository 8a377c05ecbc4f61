package sim

import "fmt"

// TensorParallel is how an engine's KV is spread over its GPUs.
type TensorParallel struct {
	Size    int // --tensor-parallel-size, default 1
	KVHeads int // of the model, default 8. With more GPUs than heads, some hold the same head
}

// refuses says why a decode engine refuses a prefill engine with remote GPUs, "" if it does not. These are the assertions of
// NIXL's handshake for models whose heads are split. MLA models have one head, which each GPU holds, and are not simulated.
func (p TensorParallel) refuses(remote int) string {
	larger, smaller := max(p.Size, remote), min(p.Size, remote)
	switch {
	case smaller < 1:
		return fmt.Sprintf("tensor parallel size %d", remote)
	case larger%smaller != 0:
		return fmt.Sprintf("tensor parallel size %d is not divisible by %d", larger, smaller)
	case remote > p.Size && remote > p.KVHeads:
		return fmt.Sprintf("tensor parallel size %d is above %d, and above the %d KV heads", remote, p.Size, p.KVHeads)
	}
	return ""
}
