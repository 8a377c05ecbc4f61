package sim

import "fmt"

// Parallel is how an engine's KV is spread over its GPUs, and which of several engines behind one port it is.
type Parallel struct {
	TP      int // --tensor-parallel-size, default 1
	KVHeads int // of the model, default 8. With more GPUs than heads, some hold the same head

	// Rank is the data-parallel rank of an engine of MoRIIO, and Ranks how many its server has, default 1. The side channel
	// of rank n has the n-th port after that of rank 0.
	Rank, Ranks int
}

// refuses says why a decode engine refuses a prefill engine with remote GPUs, "" if it does not. These are the assertions of
// NIXL's handshake for models whose heads are split. MLA models have one head, which each GPU holds, and are not simulated.
func (p Parallel) refuses(remote int) string {
	larger, smaller := max(p.TP, remote), min(p.TP, remote)
	switch {
	case smaller < 1:
		return fmt.Sprintf("tensor parallel size %d", remote)
	case larger%smaller != 0:
		return fmt.Sprintf("tensor parallel size %d is not divisible by %d", larger, smaller)
	case remote > p.TP && remote > p.KVHeads:
		return fmt.Sprintf("tensor parallel size %d is above %d, and above the %d KV heads", remote, p.TP, p.KVHeads)
	}
	return ""
}
