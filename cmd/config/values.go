package config

import (
	"strings"

	"github.com/spf13/cobra"

	"xpyd/kvparams"
	"xpyd/router"
)

// value is one value that a key may have, and what it means.
type value struct{ name, help string }

// policyValues are in the order of router.Policies.
var policyValues = []value{
	{"least_request", "the engine with the fewest requests for its weight"},
	{"least_tokens", "the engine with the fewest prompt tokens under way for its weight"},
	{"round_robin", "each engine in its turn, by weight"},
	{"random", "any engine, by weight"},
	{"power_of_two", "the one of two drawn engines that has fewer requests"},
	{"power_of_two_tokens", "the one of two drawn engines that has fewer prompt tokens under way"},
	{"consistent_hash", "the same engine for prompts that begin alike, while it has room"},
	{"prefix", "the engine that will finish the prompt first, by its load and what its prefix cache holds"},
	{"cache_aware", "the same as prefix"},
}

// keyValues holds the values of each key that has a closed set of them.
var keyValues = map[string][]value{
	"connector":      connectorValues(),
	"prefill_policy": policyValues,
	"decode_policy":  policyValues,
	"pd.mode": {
		{router.PDAlways, "a prefill of its own for each request that can be split"},
		{router.PDNever, "decode engines compute all prompts"},
		{router.PDAuto, "each request goes the way that is expected to be cheaper"},
	},
	"kv.release": {
		{"auto", "as the decode engine's version allows"},
		{"reject", "by a request that the decode engine refuses (vLLM 0.32 or later)"},
		{"decode", "by a decode of one token (any vLLM)"},
		{"off", "not at all: the blocks wait for the lease"},
	},
	"log.level": {
		{"debug", "all, with each decision's prices"},
		{"info", "a line for each completion, and changes"},
		{"warn", "what may need attention, and completions that failed"},
		{"error", "what certainly needs attention"},
	},
	"tracing.protocol": {{"grpc", "OTLP over gRPC, usually port 4317"}, {"http/protobuf", "OTLP over HTTP, usually port 4318"}},
	"log.format":       {{"json", "an object a line"}, {"console", "for people"}},
}

// connectorValues are xpyd's names of all connectors.
func connectorValues() (all []value) {
	for _, name := range kvparams.Names() {
		d, _ := kvparams.Lookup(name)
		s, help := kvparams.StandingOf(name), ""
		if engine := kvparams.EngineName(d); engine != "" {
			help = engine + " of vLLM"
		}
		if s.About != "" {
			help = strings.TrimPrefix(help+", "+s.About, ", ")
		}
		if s.Experimental() {
			help += " (experimental)"
		}
		all = append(all, value{name, help})
	}
	return all
}

// values returns what the key may be set to, or nothing where that is no closed set.
func (k key) values() []value {
	if k.isBool() {
		return []value{{"true", ""}, {"false", ""}}
	}
	return keyValues[k.path]
}

// completions are the key's values for shells. Each one says what it means and whether it is the
// default.
func (k key) completions() []cobra.Completion {
	var all []cobra.Completion
	for _, v := range k.values() {
		var about []string
		if v.help != "" {
			about = append(about, v.help)
		}
		if v.name == k.defaultText() {
			about = append(about, "the default")
		}
		all = append(all, cobra.CompletionWithDesc(v.name, strings.Join(about, "; ")))
	}
	if unit := k.unit(); all == nil && k.defaultText() != "" && unit != "string" && unit != "list" {
		all = append(all, cobra.CompletionWithDesc(k.defaultText(), "the default, a "+unit))
	}
	return all
}

// CompleteValues makes shells complete the values of the flags that AddFlags added. Where a key
// takes a file, they offer files.
func CompleteValues(cmd *cobra.Command) {
	for _, k := range configKeys() {
		directive := cobra.ShellCompDirectiveNoFileComp
		if strings.HasSuffix(k.path, "_file") {
			directive = cobra.ShellCompDirectiveDefault
		}
		if err := cmd.RegisterFlagCompletionFunc(k.flag(), cobra.FixedCompletions(k.completions(), directive)); err != nil {
			panic("BUG: " + err.Error()) // no such flag, or twice
		}
	}
}
