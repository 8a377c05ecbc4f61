package main

import "xpyd/router"

// routing is how the proxy chooses backends in one pass. The tests decide where a field is empty.
type routing struct {
	name            string
	prefill, decode string // policies
	mode            string // pd.mode
}

// alias is another name of prefix and no policy of its own.
const alias = "cache_aware"

// routings are those that must withstand every fault: the default, each policy in both pools, and
// the default with each pd.mode that lets requests go to decode alone.
func routings() []routing {
	usual := router.DefaultConfig()
	all := []routing{byDefault("defaults", usual.PD.Mode)}
	for _, policy := range router.Policies() {
		if policy != alias {
			all = append(all, routing{name: policy, prefill: policy, decode: policy, mode: usual.PD.Mode})
		}
	}
	for _, mode := range router.PDModes() {
		if mode != usual.PD.Mode {
			all = append(all, byDefault("pd.mode="+mode, mode))
		}
	}
	return all
}

// byDefault has the policies that a proxy in front of both pools takes with the pd.mode.
func byDefault(name, mode string) routing {
	c := router.DefaultConfig()
	c.PD.Mode, c.Prefill, c.Decode = mode, router.MustEntries("http://p"), router.MustEntries("http://d")
	return routing{name: name, prefill: c.PrefillPolicy, decode: c.ChosenDecodePolicy(), mode: mode}
}

// env sets the routing for the tests, as an operator does for the proxy.
func (r routing) env() []string {
	return r.settings("XPYD_PREFILL_POLICY=", "XPYD_DECODE_POLICY=", "XPYD_PD_MODE=")
}

// flags sets it for xpyd serve.
func (r routing) flags() []string {
	return r.settings("--prefill-policy=", "--decode-policy=", "--pd-mode=")
}

func (r routing) settings(prefill, decode, mode string) []string {
	var all []string
	for _, s := range [][2]string{{prefill, r.prefill}, {decode, r.decode}, {mode, r.mode}} {
		if s[1] != "" {
			all = append(all, s[0]+s[1])
		}
	}
	return all
}

// fit returns the rows for the routing. If a request may go without a prefill, it leaves out the
// tests of requests that have one, and the rows that have no others.
func (r routing) fit(rows []row) []row {
	if r.mode == "" || r.mode == router.PDAlways {
		return rows
	}
	var fit []row
	for _, row := range rows {
		if row.tests = nil; len(row.alone) > 0 {
			fit = append(fit, row)
		}
	}
	return fit
}
