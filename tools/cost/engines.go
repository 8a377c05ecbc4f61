package cost

import (
	"context"
	"io"

	"xpyd/sim"
	"xpyd/tools/completion"
	"xpyd/tools/process"
)

// Engines runs the engines of a cost run until ctx ends, as process.ServeEngines does. They compute in no
// time and have room for every stream.
//
// If cert and key name files, the engines are reached over TLS, which ends in this process.
func Engines(ctx context.Context, out io.Writer, cert, key string) error {
	var all []sim.Options
	for _, role := range []sim.Role{sim.RolePrefill, sim.RoleDecode} {
		all = append(all, sim.Options{Role: role, Model: completion.Model, MaxSeqs: 8192, NumBlocks: 1 << 19, MaxModelLen: 8192, TokenLatency: tokenLatency}.Fast())
	}
	if cert == "" {
		return process.ServeEngines(ctx, out, all, nil)
	}
	return process.ServeEngines(ctx, out, all, func(addr string) (string, error) { return terminate(ctx, cert, key, addr) })
}
