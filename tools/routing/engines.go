package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"xpyd/sim"
	"xpyd/tools/process"
)

// enginePlan is what Engines gets on its command line, as JSON.
type enginePlan struct {
	Prefill int         `json:"prefill"` // engines
	Decode  int         `json:"decode"`
	Each    engineSetup `json:"each"`
}

// Engines runs the simulated engines of a measurement until ctx ends. A JSON line on out
// says where they are: process.Pools.
func Engines(ctx context.Context, plan string, out io.Writer) (err error) {
	var p enginePlan
	in := json.NewDecoder(strings.NewReader(plan))
	in.DisallowUnknownFields()
	if err := in.Decode(&p); err != nil {
		return fmt.Errorf("read the plan of engines: %w", err)
	}
	all := make([]sim.Options, p.Prefill+p.Decode)
	for i := range all {
		if all[i], err = p.options(i); err != nil {
			return err
		}
	}
	return process.ServeEngines(ctx, out, all, nil)
}

// options are those of the i-th engine. Prefill engines come first.
func (p enginePlan) options(i int) (_ sim.Options, err error) {
	o := sim.Options{
		Name: fmt.Sprintf("prefill-%d", i), Role: sim.RolePrefill, Model: model, BlockSize: blockTokens, NumBlocks: p.Each.PrefillBlocks,
		// Streams that only wait for their next token are no bottleneck here.
		MaxSeqs: 1024, PrefillTokensPerSecond: p.Each.Speed, TransferPerBlock: p.Each.Transfer, TokenLatency: p.Each.TokenLatency,
	}
	if i >= p.Prefill {
		o.Name, o.Role, o.NumBlocks = fmt.Sprintf("decode-%d", i-p.Prefill), sim.RoleDecode, p.Each.DecodeBlocks
	}
	o.MaxModelLen = o.NumBlocks * blockTokens
	if p.Each.Profile != "" {
		o.Profile, err = sim.ProfileNamed(p.Each.Profile)
	}
	return o, err
}

// startEngines runs them in a process of their own.
func startEngines(ctx context.Context, executable, dir string, p enginePlan) (*process.Process, process.Pools, error) {
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, process.Pools{}, fmt.Errorf("write the plan of engines: %w", err)
	}
	return process.StartEngines(ctx, dir, executable, "routing-engines", "--plan", string(plan))
}
