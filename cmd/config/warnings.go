package config

import (
	"fmt"
	"slices"
	"time"

	"xpyd/router"
)

// Warnings returns one line for each thing that is legal but probably not meant:
//   - settings that have no effect because of others, although the operator expects one,
//   - variables that name no key,
//   - open doors,
//   - connectors that were never run,
//   - checks that are too slow for the lease,
//   - budgets that the memory limit has no room for.
func Warnings(c Config) []string {
	r := c.Router
	alone, never := len(r.Pooled(router.Prefill)) == 0, r.PD.Mode == router.PDNever
	shared := !alone && !never && c.DecodeOnly.Enabled && c.DecodeOnly.MaxShare > 0 && c.DecodeOnly.MaxShare < 1
	const noPool, noPrefills = "there is no prefill pool", "with pd.mode never no request gets a prefill"
	var found []string
	for _, rule := range []struct {
		idle  bool
		why   string
		paths []string
	}{
		{alone, noPool, []string{"prefill_policy", "prefill_max_in_flight", "pd.mode", "pd.threshold_tokens", "pd.stall_weight", "decode_only.enabled", "decode_only.max_share"}},
		{never && !alone, noPrefills, []string{"prefill_policy", "prefill_max_in_flight", "pd.threshold_tokens", "decode_only.enabled", "decode_only.max_share"}},
		{!alone && r.PD.Mode != router.PDAuto, "it is for pd.mode auto", []string{"pd.stall_weight"}},
		{!c.DecodeOnly.Enabled && !alone && !never, "decode_only.enabled is false", []string{"decode_only.max_share"}},
		{r.PrefillMaxInFlight == 0 && r.DecodeMaxInFlight == 0 && r.EncodeMaxInFlight == 0 && !shared, "without prefill_max_in_flight, decode_max_in_flight and encode_max_in_flight no request waits", []string{"queue.length", "queue.wait"}},
		{r.Routing.PrefixMemory > 0 && !remembers(r) && !c.isLowered("routing.prefix_memory"), "it is for policy prefix, pd.mode auto and pd.threshold_tokens, and none of them is in use", []string{"routing.prefix_memory"}},
		{r.Health.EjectAfter == 0, "with health.eject_after 0 no backend is ejected", []string{"health.eject_for", "health.eject_max"}},
		{len(r.Encode) == 0, "there is no encode pool", []string{"encode_max_in_flight", "timeouts.encode"}},
		{!c.Tracing.On(), "there is no tracing.endpoint", []string{"tracing.protocol", "tracing.sample"}},
		{len(c.CORS.Origins) == 0, "cors.origins is empty", []string{"cors.credentials"}},
		{c.Admin == "", "there is no admin port", []string{"pprof", "admin_token_file", "admin_tls.cert", "admin_tls.key", "admin_tls.client_ca"}},
	} {
		if rule.idle {
			found = append(found, idleKeys(c, rule.paths, rule.why)...)
		}
	}
	if never && len(r.Prefill) > 0 {
		found = append(found, fmt.Sprintf("prefill: its %d backends get no request: pd.mode is never", len(r.Prefill)))
	}
	if len(r.Encode) > 0 {
		found = append(found, "encode: is experimental; see docs/encode.md")
	}
	return slices.Concat(found, lateChecks(c), shortChecks(c), forgetful(r), loneWeights(r), twoNames(r), overLimit(c), belowDefault(c), idleTLS(c), openDoor(c), clearSecrets(c), openProfiles(c), unproven(c), c.noticed)
}

// lateChecks warns of checks that are too slow for the lease. A decode engine that queues a request
// renews the lease, but may have only half of it left when an engine stops responding.
func lateChecks(c Config) []string {
	h := c.Router.Health
	if !c.readsHandles() {
		return nil // a late decode has no handle to read by
	}
	after := h.Interval + time.Duration(h.Fall)*h.Timeout + time.Duration(h.Fall-1)*h.SuspectInterval
	if len(c.Router.Pooled(router.Prefill)) == 0 || c.Router.PD.Mode == router.PDNever || after <= c.KV.Lease/2 {
		return nil
	}
	return []string{invalid("kv.lease", c.KV.Lease.String(), fmt.Sprintf("is too short for checks that notice an engine that stands still after up to %s, more than half of it: "+
		"when it runs again, decode may read blocks that another prompt has by then; lower health.interval, health.timeout, health.suspect_interval or health.fall", after)).Error()}
}

// idleKeys warns of each of the paths that is not at its default.
func idleKeys(c Config, paths []string, why string) (found []string) {
	for _, k := range configKeys() {
		if value := k.text(c); slices.Contains(paths, k.path) && value != k.defaultText() {
			found = append(found, invalid(k.path, value, "has no effect: "+why).Error())
		}
	}
	return found
}

// remembers reports whether something uses routing.prefix_memory.
func remembers(r router.Config) bool {
	return len(r.Pooled(router.Prefill)) > 0 && prefixPolicy(r.PrefillPolicy) || prefixPolicy(r.ChosenDecodePolicy()) ||
		r.PD.Mode == router.PDAuto || r.PD.Mode != router.PDNever && r.PD.ThresholdTokens > 0
}

func prefixPolicy(name string) bool { return name == "prefix" || name == "cache_aware" }

// forgetful warns of policies that have no memory to go by.
func forgetful(r router.Config) (found []string) {
	if r.Routing.PrefixMemory > 0 {
		return nil
	}
	const why = "is least_tokens: routing.prefix_memory is 0"
	if prefixPolicy(r.PrefillPolicy) && len(r.Pooled(router.Prefill)) > 0 && r.PD.Mode != router.PDNever {
		found = append(found, invalid("prefill_policy", r.PrefillPolicy, why).Error())
	}
	if policy := r.ChosenDecodePolicy(); prefixPolicy(policy) {
		found = append(found, invalid("decode_policy", policy, why).Error())
	}
	return found
}

// loneWeights warns of weights in a pool of one backend.
func loneWeights(r router.Config) (found []string) {
	for _, role := range router.Roles() {
		pool := r.Pooled(role)
		if len(pool) == 1 && pool[0].GPUs == 0 && pool[0].Weight != 1 {
			found = append(found, fmt.Sprintf("%s: %q has a weight without effect: the pool has no other backend", listOf(pool[0].Role), pool[0].URL))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
