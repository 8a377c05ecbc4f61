package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"
)

// transferTries is how many transfers of a length are measured. The median counts.
const transferTries = 3

// transferLengths are the lengths of prompts in tokens. Those that the model has no room for are left out.
func transferLengths() []int { return []int{256, 1024, 4096, 16384} }

// transfer is one pull of KV blocks, by the decode engine's own metrics.
type transfer struct {
	round
	tokens         int
	bytes, seconds float64
	busy           bool // the engine had other transfers meanwhile
}

// gbps is its speed in 10⁹ bytes a second; 0 if it is not known.
func (t *transfer) gbps() float64 {
	if t.busy || t.seconds <= 0 {
		return 0
	}
	return t.bytes / t.seconds / 1e9
}

// bandwidth measures the pairs whose first round succeeded. That round was their handshake. The longest transfer of each, which is
// the fastest, must have at least so many GB/s.
func (p *engineProber) bandwidth(ctx context.Context, least float64) {
	for _, r := range slices.Clone(p.report.rounds) {
		if r.result != "ok" {
			continue
		}
		var longest transfer
		for _, tokens := range transferLengths() {
			if p.room > 0 && tokens >= p.room {
				continue
			}
			t, err := p.medianTransfer(ctx, r, tokens)
			if err != nil {
				p.fault("prefill %s with decode %s, %d tokens: %v", r.prefill, r.decode, tokens, err)
				break
			}
			p.transfers = append(p.transfers, t)
			longest = t
		}
		if speed := longest.gbps(); speed > 0 && speed < least {
			p.fault("prefill %s with decode %s: %.3g GB/s, and kv.transfer_gbps is %g: the blocks take another link, such as TCP or host memory; see docs/troubleshooting.md", r.prefill, r.decode, speed, least)
		}
	}
}

func (p *engineProber) medianTransfer(ctx context.Context, pair round, tokens int) (transfer, error) {
	var all []transfer
	for range transferTries {
		t := transfer{round: pair, tokens: tokens}
		if err := p.transfer(ctx, &t); err != nil {
			return t, err
		}
		if t.busy {
			return t, nil
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b transfer) int { return cmp.Compare(a.seconds, b.seconds) })
	return all[len(all)/2], nil
}

// transfer sends a round, and reads from the metrics what it moved.
func (p *engineProber) transfer(ctx context.Context, t *transfer) error {
	before, err := p.moved(ctx, t.decode)
	if err != nil {
		return err
	}
	if err := p.round(ctx, &t.round, transferBody(t.model, t.tokens)); err != nil {
		return err
	}
	now, err := p.moved(ctx, t.decode)
	for end := time.Now().Add(askTimeout); err == nil && now[0] == before[0]; now, err = p.moved(ctx, t.decode) {
		if time.Now().After(end) {
			return fmt.Errorf("decode %s counts no transfer", t.decode)
		}
		time.Sleep(100 * time.Millisecond) // counters rise shortly after an answer
	}
	if err != nil {
		return err
	}
	t.busy, t.seconds, t.bytes = now[0]-before[0] > 1, now[1]-before[1], now[2]-before[2]
	return nil
}

// moved returns a decode engine's transfers so far: their number, seconds and bytes.
func (p *engineProber) moved(ctx context.Context, url string) (m [3]float64, err error) {
	for i, name := range []string{"vllm:nixl_xfer_time_seconds_count", "vllm:nixl_xfer_time_seconds_sum", "vllm:nixl_bytes_transferred_sum"} {
		var ok bool
		if m[i], ok = p.counted(ctx, url, name); !ok {
			return m, fmt.Errorf("decode %s shows no %s", url, name)
		}
	}
	return m, nil
}

// transferBody returns a request whose prompt has that many tokens and is in no engine's prefix cache.
// The ids are words or parts of words in any vocabulary.
func transferBody(model string, tokens int) []byte {
	ids := make([]int, tokens)
	for i := range ids {
		ids[i] = 270 + rand.IntN(100)
	}
	body, err := json.Marshal(map[string]any{"model": model, "max_tokens": 1, "temperature": 0, "prompt": ids})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return body
}

func printTransfers(w io.Writer, all []transfer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nPREFILL\tDECODE\tTOKENS\tMB\tTRANSFER MS\tGB/S\tPREFILL MS\tDECODE MS")
	for _, x := range all {
		fmt.Fprintf(t, "%s\t%s\t%d\t", x.prefill, x.decode, x.tokens)
		if x.busy {
			fmt.Fprintln(t, "busy\t-\t-\t-\t-")
			continue
		}
		speed := "-"
		if x.seconds > 0 {
			speed = fmt.Sprintf("%.3g", x.gbps())
		}
		fmt.Fprintf(t, "%.1f\t%.1f\t%s\t%d\t%d\n", x.bytes/1e6, 1000*x.seconds, speed, x.prefillTime.Milliseconds(), x.decodeTime.Milliseconds())
	}
	return t.Flush()
}
