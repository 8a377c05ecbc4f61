package config

import (
	"strings"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

func TestConfigRefusesEnginesWithoutAPartner(t *testing.T) {
	const fix = `, so it could never make a pair; add " connector=NAME" after the URL with the one that its engine uses, or add a `
	for _, tc := range []struct {
		prefill, decode, want string
	}{
		{"http://p:1", "http://d:1 connector=mooncake", `config: prefill: "http://p:1" has connector nixl, and no decode backend has it` + fix + `decode backend with connector nixl (flag --prefill, XPYD_PREFILL)`},
		{"http://p:1", "http://d:1,http://e:1 connector=mooncake", `config: decode: "http://e:1" has connector mooncake, and no prefill backend has it` + fix + `prefill backend with connector mooncake (flag --decode, XPYD_DECODE)`},
		{"http://p:1,http://q:1 connector=moriio", "http://d:1", `config: prefill: "http://q:1" has connector moriio, and no decode backend has it` + fix + `decode backend with connector moriio (flag --prefill, XPYD_PREFILL)`},
		{"http://p:1 connector=nixlv3", "http://d:1", `config: prefill: "http://p:1 connector=nixlv3" must have one of the connectors ` + strings.Join(kvparams.Names(), ", ") + ` (flag --prefill, XPYD_PREFILL)`},
		{"http://p:1 connector=", "http://d:1", `config: prefill: "http://p:1 connector=" must have one name of a connector; try http://p:1 connector=nixl (flag --prefill, XPYD_PREFILL)`},
	} {
		_, err := load(t, []string{"--prefill", tc.prefill, "--decode", tc.decode}, nil)
		checkUsage(t, err, tc.want)
	}
}

func TestConfigRefusesPortsOfNoUse(t *testing.T) {
	for _, tc := range []struct{ flags, want string }{
		{"--connector=moriio-write --prefill=http://p:1 --decode=http://d:1 bootstrap=65436", `config: decode: "http://d:1 bootstrap=65436" has a bootstrap port above 65435, and its connector moriio-write has a further port above that; start the engine with a lower handshake_port (flag --decode, XPYD_DECODE)`},
		{"--connector=moriio-write --prefill=http://p:1 --decode=http://d:1 bootstrap=65435", ""},
		{"--prefill=http://p:1 --decode=http://d:1 --encode=http://e:1 bootstrap=7", `config: encode: "http://e:1 bootstrap=7" has a bootstrap port, and an encode engine hands no KV over; remove " bootstrap=7" (flag --encode, XPYD_ENCODE)`},
	} {
		flags := strings.Split(tc.flags, " --")
		for i := range flags[1:] {
			flags[i+1] = "--" + flags[i+1]
		}
		_, err := load(t, flags, nil)
		if tc.want == "" && err != nil {
			t.Error(err)
		} else if tc.want != "" {
			checkUsage(t, err, tc.want)
		}
	}
}

func TestConfigOfSeveralConnectors(t *testing.T) {
	c, err := load(t, []string{"--connector=shared-storage", "--prefill", "http://p:1,http://q:1 bootstrap=9000 connector=mooncake,http://r:1@0..1 connector=nixl",
		"--decode", "http://d:1 connector=shared-storage,http://e:1 connector=mooncake state=drain,http://f:1 connector=nixl"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(router.Texts(c.Router.Prefill), ","), "http://p:1,http://q:1 bootstrap=9000 connector=mooncake,http://r:1@0 connector=nixl,http://r:1@1 connector=nixl"; got != want {
		t.Errorf("prefill %s", got)
	}
	for i, want := range []string{"shared-storage", "mooncake", "nixl", "nixl"} {
		if e := c.Router.Prefill[i]; c.Dialect(e).Name() != want {
			t.Errorf("%s: %s", e, c.Dialect(e).Name())
		}
	}
	// An entry that names the connector of the others is one of them.
	c.Router.Connector = c.Connector
	r, err := router.New(c.Router, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "mooncake", "nixl"} {
		if got := r.Snapshot().Members(router.Decode)[i].Connector; got != want {
			t.Errorf("decode %d has %q, want %q", i, got, want)
		}
	}
	warnings := strings.Join(Warnings(c), "\n")
	if !strings.Contains(warnings, `connector: "mooncake" is experimental`) || strings.Contains(warnings, `"nixl" is experimental`) {
		t.Errorf("warnings:\n%s", warnings)
	}
	// An operator who adds a pair at run time adds one engine first.
	pools := c.Router
	pools.Prefill = append(pools.Prefill, router.MustEntries("http://s:1 connector=moriio")...)
	if err := c.Fits(pools); err != nil {
		t.Error(err)
	}
	pools.Prefill = append(pools.Prefill, router.MustEntries("http://t:1 connector=none")...)
	if err := c.Fits(pools); err == nil || !strings.Contains(err.Error(), "http://t:1 connector=none") {
		t.Errorf("%v", err)
	}
}

// An engine's own name of a connector stands for xpyd's where it has one meaning.
func TestConnectorsByTheEnginesNames(t *testing.T) {
	c, err := load(t, []string{"--connector=FlexKVConnectorV1", "--prefill=http://p:1,http://q:1 connector=NixlPullConnector", "--decode=http://d:1 connector=flexkv,http://e:1 connector=nixl"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Connector != "flexkv" || c.Router.Prefill[1].Connector != "nixl" {
		t.Errorf("connector %q, and the second prefill engine has %q", c.Connector, c.Router.Prefill[1].Connector)
	}
	if c, err = load(t, []string{"--engine=http://a:1 connector=FlexKVConnectorV1", "--engine=http://b:1"}, nil); err != nil || c.Router.Engines[0].Connector != "flexkv" {
		t.Errorf("engines without a role: %v, %v", c.Router.Engines, err)
	}
	for name, want := range map[string]string{"MoRIIOConnector": "; MoRIIOConnector is moriio or moriio-write ", "OffloadingConnector": "; OffloadingConnector is offloading or offloading-p2p ", "none": "store, moriio"} {
		if _, err := load(t, []string{"--connector=" + name, "--prefill=http://p:1", "--decode=http://d:1"}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
