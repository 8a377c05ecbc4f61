package kvparams

import (
	"fmt"
	"slices"
	"strings"
)

// How is what was done with engines of a release.
type How string

// What can be done with them, from the most to the least.
const (
	Run      How = "run"      // the checks of make e2e, or those of docs/results/gpu.md, went through xpyd
	Recorded How = "recorded" // their answers were recorded, and the tests read them
	Read     How = "read"     // xpyd's side was written from their source, and tested with simulated engines
)

// Tried is one release with which a connector was tried. All are vLLM's, except SGLang's own.
type Tried struct {
	How     How
	Release string
	Where   string // what it ran on; "" if it was only read
	Date    string
}

// Standing is what is known of a connector from its engines. Without a row in Standings it is only read.
type Standing struct {
	Name    string   // xpyd's name of the connector
	Engines []string // the engines' names of it, the usual one first; each is an alias where it has one meaning
	About   string   // what the name does not say
	Links   string   // what links the two legs
	Tried   []Tried
	Fault   string // why users must look at docs/connectors.md although it ran
}

// Standings has all of them in the order of dialects. docs/connectors.md has this table (make docs).
func Standings() []Standing {
	const cpu, h200, handle = "CPU", "2 H200s", "the handle in the prefill's answer"
	return []Standing{
		{"nixl", []string{"NixlConnector", "NixlPullConnector"}, "", handle, []Tried{
			{Recorded, "0.28.0", cpu, "2026-11-21"}, {Run, "0.26.0", h200, "2026-11-22"}, {Run, "0.32.0", cpu, "2026-11-26"},
			{Run, "0.32.0", h200, "2026-11-22"}, {Run, "0.33.0", h200, "2026-11-27"},
		}, ""},
		{"nixl-push", []string{"NixlPushConnector"}, "", "the handle, and an id that both legs carry", []Tried{{Run, "0.32.0", cpu, "2026-11-23"}}, ""},
		{"mooncake", []string{"MooncakeConnector"}, "", "a transfer id that xpyd makes", []Tried{{Run, "0.32.0", cpu, "2026-11-26"}}, "its engines had to be told their device"},
		{"shared-storage", []string{"ExampleConnector", "SharedStorageConnector"}, "", "a folder that all engines see", []Tried{{Run, "0.32.0", cpu, "2026-11-26"}}, ""},
		{"offloading", []string{"OffloadingConnector"}, "a tier of type fs", "a tier that all engines see", []Tried{{Read, "0.32.0", "", "2026-11-22"}}, ""},
		{"offloading-p2p", []string{"OffloadingConnector"}, "a peer-to-peer tier", "an id that xpyd makes", []Tried{{Run, "0.33.0", h200, "2026-11-27"}}, "a decode engine that has lost a peer must be restarted"},
		{"lmcache", []string{"LMCacheMPConnector", "LMCacheConnectorV1"}, "", "a cache server that all engines see", []Tried{{Run, "0.32.0", cpu, "2026-11-26"}}, "its engines can die when a request is cut"},
		{"mooncake-store", []string{"MooncakeStoreConnector"}, "", "a store that all engines see", []Tried{{Read, "0.33.0", "", "2026-11-28"}}, ""},
		{"flexkv", []string{"FlexKVConnectorV1"}, "", "a store that all engines see", []Tried{{Read, "0.33.0", "", "2026-11-28"}}, ""},
		{"hf3fs", []string{"HF3FSKVConnector"}, "", "a file system that all engines see", []Tried{{Read, "0.33.0", "", "2026-11-28"}}, ""},
		{"store", nil, "any other that needs no parameters", "whatever all engines see", nil, ""},
		{"moriio", []string{"MoRIIOConnector"}, "read mode", handle, []Tried{{Read, "0.32.0", "", "2026-11-22"}, {Read, "0.33.0", "", "2026-11-28"}}, ""},
		{"moriio-write", []string{"MoRIIOConnector"}, "write mode", "the handle, and the decode engine's address", []Tried{{Read, "0.32.0", "", "2026-11-26"}, {Read, "0.33.0", "", "2026-11-28"}}, ""},
		{"sglang", nil, "SGLang's disaggregation", "a room that xpyd makes", []Tried{{Read, "0.5.23", "", "2026-11-23"}}, ""},
	}
}

// StandingOf is that of the connector with xpyd's name for it.
func StandingOf(name string) Standing {
	for _, s := range Standings() {
		if s.Name == name {
			return s
		}
	}
	return Standing{Name: name}
}

// Canonical is xpyd's name of a connector whose engines' own name is given, if that stands for one connector only.
// Any other name stays as it is.
func Canonical(name string) string {
	found := ""
	for _, s := range Standings() {
		if slices.Contains(s.Engines, name) {
			if found != "" {
				return name
			}
			found = s.Name
		}
	}
	if found == "" {
		return name
	}
	return found
}

// How is the most that was done with engines of any release.
func (s Standing) How() How {
	for _, how := range []How{Run, Recorded} {
		if slices.ContainsFunc(s.Tried, func(t Tried) bool { return t.How == how }) {
			return how
		}
	}
	return Read
}

// Experimental says that no engine has run the connector, or that its engines have a fault that users must know.
func (s Standing) Experimental() bool { return s.How() != Run || s.Fault != "" }

// Ran lists the minor releases that ran, as "0.32 and 0.33", or is empty.
func (s Standing) Ran() string {
	var all []string
	for _, t := range s.Tried {
		if t.How == Run {
			all = append(all, t.Release[:strings.LastIndexByte(t.Release, '.')])
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// Unproven says that engines of the version have not run with the connector, and which have, or is empty if they have. An
// unreadable version says nothing.
func (s Standing) Unproven(version string) string {
	major, minor, ok := Release(version)
	if !ok {
		return ""
	}
	release := fmt.Sprintf("%d.%d", major, minor)
	switch ran := s.Ran(); {
	case ran == "":
		return fmt.Sprintf("xpyd's connector %s has not run with any release (docs/connectors.md)", s.Name)
	case slices.Contains(strings.Split(ran, ", "), release):
		return ""
	default:
		return fmt.Sprintf("xpyd's connector %s has not run with %s, but with %s (docs/connectors.md)", s.Name, release, ran)
	}
}
