package kvparams

import (
	"slices"
	"strings"
	"testing"
)

// Each connector has its row, in one order, and the name by which engines are started is the first of their names.
func TestStandings(t *testing.T) {
	var names []string
	for _, s := range Standings() {
		names = append(names, s.Name)
		d, ok := Lookup(s.Name)
		if !ok {
			t.Errorf("%s is no connector", s.Name)
			continue
		}
		if name := EngineName(d); name != "" && (len(s.Engines) == 0 || name != s.Engines[0]) {
			t.Errorf("%s: engines are started with %s, and their names are %s", s.Name, name, s.Engines)
		}
		for _, ran := range s.Tried {
			if _, _, ok := Release(ran.Release); !ok || strings.Count(ran.Release, ".") != 2 || len(ran.Date) != len("2026-11-28") || (ran.Where == "") != (ran.How == Read) {
				t.Errorf("%s: %+v", s.Name, ran)
			}
		}
	}
	if !slices.Equal(names, Names()) {
		t.Errorf("rows of %v, and the connectors are %v", names, Names())
	}
}

func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"nixl": "nixl", "NixlConnector": "nixl", "NixlPullConnector": "nixl", "NixlPushConnector": "nixl-push", "FlexKVConnectorV1": "flexkv",
		"MooncakeStoreConnector": "mooncake-store", "HF3FSKVConnector": "hf3fs", "LMCacheConnectorV1": "lmcache", "SharedStorageConnector": "shared-storage",
		"MoRIIOConnector": "MoRIIOConnector", "OffloadingConnector": "OffloadingConnector", "": "", "none": "none",
	} {
		if got := Canonical(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestUnprovenReleases(t *testing.T) {
	for _, c := range []struct{ connector, version, want string }{
		{"nixl", "0.33.1+cu130", ""},
		{"nixl", "0.34.0", "xpyd's connector nixl has not run with 0.34, but with 0.26, 0.32, 0.33 (docs/connectors.md)"},
		{"nixl", "", ""},
		{"nixl", "dev", ""},
		{"nixl-push", "0.33.0", "xpyd's connector nixl-push has not run with 0.33, but with 0.32 (docs/connectors.md)"},
		{"flexkv", "0.33.0", "xpyd's connector flexkv has not run with any release (docs/connectors.md)"},
		{"unheard-of", "0.33.0", "xpyd's connector unheard-of has not run with any release (docs/connectors.md)"},
	} {
		if got := StandingOf(c.connector).Unproven(c.version); got != c.want {
			t.Errorf("%s with %q: got %q, want %q", c.connector, c.version, got, c.want)
		}
	}
	for name, want := range map[string]bool{"nixl": false, "nixl-push": false, "shared-storage": false, "mooncake": true, "moriio": true, "store": true, "unheard-of": true} {
		if got := StandingOf(name).Experimental(); got != want {
			t.Errorf("%s: experimental %v", name, got)
		}
	}
}
