package cost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"xpyd/sim"
	"xpyd/tools/completion"
	"xpyd/tools/process"
)

// Engines runs the engines of a cost run until ctx ends. One JSON line on out says where they are,
// as process.Pools. They compute in no time and have room for every stream.
//
// If cert and key name files, the engines are reached over TLS, which ends in this process.
func Engines(ctx context.Context, out io.Writer, cert, key string) (err error) {
	prefill, err := startEngine(sim.RolePrefill)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, prefill.Close()) }()
	decode, err := startEngine(sim.RoleDecode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, decode.Close()) }()
	addrs := []string{prefill.Addr(), decode.Addr()}
	for i := range addrs {
		if cert == "" {
			break
		}
		if addrs[i], err = terminate(ctx, cert, key, addrs[i]); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(out).Encode(process.Pools{Prefill: addrs[:1], Decode: addrs[1:]}); err != nil {
		return fmt.Errorf("say where the engines are: %w", err)
	}
	<-ctx.Done()
	return nil
}

func startEngine(role sim.Role) (*sim.Engine, error) {
	e, err := sim.Start(sim.Options{Role: role, Model: completion.Model, MaxSeqs: 8192, NumBlocks: 1 << 19, MaxModelLen: 8192, TokenLatency: tokenLatency}.Fast())
	if err != nil {
		return nil, fmt.Errorf("start the %s engine: %w", role, err)
	}
	return e, nil
}
