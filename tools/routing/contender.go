package routing

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"xpyd/tools/process"
)

// Names that the verdicts know.
const (
	policyPrefix  = "prefix"
	policySession = "consistent_hash"
	modeAlways    = "always"
	modeAuto      = "auto"
	modeNever     = "never"
	routerPrefix  = "vllm-router/"
	splits        = policyPrefix + "+" + modeAlways
	neverSplits   = policyPrefix + "+" + modeNever
	candidate     = policyPrefix + "+" + modeAuto
	baseline      = "round_robin"
	wholeEngines  = "whole"    // all engines serve whole, without a prefill pool
	noRoles       = "no-roles" // all engines without a role, with pd.mode auto
	nameOracle    = "oracle"   // it splits all
)

// oracles are those of a table, by name, with their modes.
func oracles() []struct{ name, mode string } {
	return []struct{ name, mode string }{
		{nameOracle, modeAlways}, {nameOracle + "+" + modeAuto, modeAuto}, {nameOracle + "+" + modeNever, modeNever},
	}
}

// contender routes the requests.
type contender struct {
	name     string
	sessions bool // its requests name their session, which it goes by
	onePool  bool // it has the engines of both pools in one
	start    func(ctx context.Context, dir string, to process.Pools) (p *process.Process, addr string, err error)
}

// standard are the contenders of a run that names none: xpyd's by prefill policy, with a + and
// pd.mode if that is not always, and vllm-router's.
func standard() []string {
	return []string{
		candidate, splits, neverSplits, wholeEngines, noRoles,
		"least_tokens", "least_request", "power_of_two", policySession, baseline, "random",
		routerPrefix + "cache_aware", routerPrefix + "power_of_two", routerPrefix + baseline,
	}
}

// xpyd is a contender, or says why there is none of that name.
func (o *Options) xpyd(name string) (contender, error) {
	policy, mode, given := strings.Cut(name, "+")
	if !slices.Contains(o.Policies, policy) {
		return contender{}, fmt.Errorf("%s is not there: this build has no policy %s", name, policy)
	}
	flags := []string{"--prefill-policy", policy}
	if policy == policySession {
		flags = append(flags, "--affinity-headers", sessionHeader)
	}
	switch {
	case slices.Contains(o.Modes, mode):
		flags = append(flags, "--pd-mode", mode)
	case given && mode != modeAlways:
		return contender{}, fmt.Errorf("%s is not there: this build has no pd.mode %s", name, mode)
	case slices.Contains(o.Modes, modeAlways):
		flags = append(flags, "--pd-mode", modeAlways)
	}
	return contender{name: name, sessions: policy == policySession, start: func(ctx context.Context, dir string, to process.Pools) (*process.Process, string, error) {
		x, err := process.StartXpyd(ctx, dir, nil, o.Xpyd, to, flags...)
		if err != nil {
			return nil, "", err
		}
		return x.Process, x.Addr, nil
	}}, nil
}

// together is xpyd with all engines in one pool.
func (o *Options) together(name string) contender {
	return contender{name: name, onePool: true, start: func(ctx context.Context, dir string, to process.Pools) (*process.Process, string, error) {
		flags := []string{"--pd-mode", modeAuto}
		for _, addr := range to.Decode {
			flags = append(flags, "--engine", "http://"+addr)
		}
		if name == wholeEngines {
			flags = []string{"--pd-mode", modeNever, "--decode-policy", policyPrefix, "--decode", "http://" + strings.Join(to.Decode, ",http://")}
		}
		x, err := process.Serve(ctx, filepath.Join(dir, "xpyd.log"), nil, o.Xpyd, flags...)
		if err != nil {
			return nil, "", err
		}
		return x.Process, x.Addr, nil
	}}
}

// router is vllm-router with one of its policies.
func (o *Options) router(name string) (contender, error) {
	path := process.Find("vllm-router", o.VLLMRouter)
	if path == "" {
		return contender{}, fmt.Errorf("%s is not installed: pip install vllm-router, or --vllm-router PATH", name)
	}
	policy := strings.TrimPrefix(name, routerPrefix)
	return contender{name: name, sessions: policy == policySession, start: func(ctx context.Context, dir string, to process.Pools) (*process.Process, string, error) {
		return process.StartVLLMRouter(ctx, dir, 2, path, policy, to)
	}}, nil
}

// contender is the one of that name.
func (o *Options) contender(name string) (contender, error) {
	switch {
	case name == wholeEngines || name == noRoles:
		return o.together(name), nil
	case strings.HasPrefix(name, routerPrefix):
		return o.router(name)
	}
	return o.xpyd(name)
}
