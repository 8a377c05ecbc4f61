package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// connector is a way that KV travels, as far as the checks must know it. What a connector cannot do
// is a field of its row here, so that no check asks for a name.
type connector struct {
	name    string
	xpyd    string // as xpyd's --connector takes it; "" is name
	engines string // vLLM's class; "" is that of scripts/real-vllm, NIXL's pull
	role    string // kv_role of all engines; "" is that of their pool
	extra   string // members of kv_connector_extra_config, with FOLDER, STORE and ROLE in the place of their values
	module  string // Python module of the class; "" is vLLM's own
	pkg     string // what scripts/real-vllm/extra.sh installs for it
	// bootstrap is true if xpyd asks a server beside each prefill engine, whose port is 1000 above the engine's.
	bootstrap bool
	together  bool // the legs start at once
	// moves is the role of the engines that count NIXL's transfers. "" is for a connector without
	// handles: xpyd sends no warm-up, and what tells that blocks have come is stored.
	moves string
	// stored returns how many of a prompt's tokens the decode engine takes from elsewhere. nil is for
	// connectors whose handle covers the whole prompt.
	stored func(prompt int) int
	// keeps says that a decode engine keeps blocks for a prefill engine that was killed until it is restarted.
	keeps bool
	// lapse is how long a decode engine holds blocks for a prefill engine that was killed, because it waits so long for its
	// answer. 0 is for one that notices at once, or never.
	lapse time.Duration
	// forgets says that a decode engine may lose the blocks of an answer that is not a stream, if its leg is cut while the
	// prefill engine stands still. It then asks a second time to have the prefill engine's blocks freed, and gets no
	// answer to the first question if the second one is served first. Only a restart frees its blocks.
	forgets bool
	store   bool  // the engines keep blocks in a cache server, which the run starts
	folder  bool  // where stored lies; the log of the decode engine says what it has taken from there
	lethal  []int // lengths of prompts that end an engine, in tokens; they are left out
	checks  []string
}

// connectors are those whose engines run on a processor. The first one is the default, and has every
// check.
func connectors() []connector {
	return []connector{
		{name: "nixl", moves: "decode"},
		{name: "nixl-push", engines: "NixlPushConnector", moves: "prefill", keeps: true,
			checks: []string{"exact 1P1D", "exact 2P1D", "counters", "leave", "die"}},
		{name: "shared-storage", engines: "ExampleConnector", role: "kv_both",
			extra: `"shared_storage_path":"FOLDER"`, stored: exampleStored, folder: true, lethal: []int{1, 33},
			checks: []string{"exact 1P1D", "exact 2P1D", "counters", "leave", "die"}},
		{name: "lmcache", engines: "LMCacheMPConnector", role: "kv_both", module: "lmcache.integration.vllm.lmcache_mp_connector", pkg: "lmcache",
			extra: `"lmcache.mp.host":"tcp://127.0.0.1","lmcache.mp.port":STORE`, store: true, stored: lmcacheStored,
			checks: []string{"exact 1P1D", "exact 2P1D", "counters", "leave", "die"}},
		{name: "mooncake", engines: "MooncakeConnector", module: "mooncake_on_cpu", pkg: "mooncake", bootstrap: true, together: true,
			extra: `"mooncake_protocol":"tcp"`, stored: func(prompt int) int { return prompt },
			lapse: 30*time.Second + time.Minute, forgets: true, // VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT of engine.sh, and 60 s of vLLM's own
			checks: []string{"exact 1P1D", "exact 2P1D", "counters", "leave", "die"}},
		{name: "multi", xpyd: "nixl", engines: "MultiConnector", moves: "decode",
			extra: `"connectors":[{"kv_connector":"NixlConnector","kv_role":"ROLE"},` +
				`{"kv_connector":"ExampleConnector","kv_role":"kv_both","kv_connector_extra_config":{"shared_storage_path":"FOLDER"}}]`,
			checks: []string{"exact 1P1D", "exact 2P1D", "counters", "leave", "die"}},
	}
}

// holds is how long after its last request an engine may have blocks in use. Where no handle says what a prefill engine
// has pinned, nothing gives back what a decode engine that has died did not ask for, and its time limit frees it.
func (c connector) holds(role string) time.Duration {
	if c.together && role == "prefill" {
		return leaseWait
	}
	return dieRelease
}

// exampleStored is the rule of vLLM 0.32's ExampleConnector with blocks of 32 tokens. It stores the
// blocks before a prompt's last token, (n-1)/32 of them, under a key made of their tokens. It looks for
// a key of (n-2)/32 blocks. The two differ where n is a multiple of 32 and one more, and nothing is
// found. It also subtracts what is cached from what it has found. So once any prompt of at most one
// block is stored, under the key of no tokens, a prompt of one token finds -32 tokens, and so does one
// of 33 whose first block is cached. Either ends the engine.
func exampleStored(prompt int) int {
	if prompt%block == 1 {
		return 0
	}
	return (prompt - 1) / block * block
}

// lmcacheStored is every whole block of a prompt, but for its last token, which decode computes.
func lmcacheStored(prompt int) int { return min(prompt/block*block, prompt-1) }

// block is the tokens of a block of scripts/real-vllm.
const block = 32

// ends reports whether a prompt of token ids has a length that ends an engine.
func (c connector) ends(prompt any) bool {
	ids, ok := prompt.([]int)
	return ok && slices.Contains(c.lethal, len(ids))
}

// shortest returns the tokens of the shortest prompt that is sent.
func (c connector) shortest() int64 {
	n := 1
	for slices.Contains(c.lethal, n) {
		n++
	}
	return int64(n)
}

// option returns the value of xpyd's --connector.
func (c connector) option() string {
	if c.xpyd != "" {
		return c.xpyd
	}
	return c.name
}

// env is how engine.sh is told of the connector.
func (c connector) env(role, place string) []string {
	if role == "plain" {
		return nil
	}
	kv := c.role
	if kv == "" {
		kv = map[string]string{"prefill": "kv_producer", "decode": "kv_consumer"}[role]
	}
	extra := strings.NewReplacer("FOLDER", place, "STORE", place, "ROLE", kv).Replace(c.extra)
	return []string{"KV_CONNECTOR=" + c.engines, "KV_ROLE=" + c.role, "KV_EXTRA=" + extra, "KV_MODULE=" + c.module, "KV_PACKAGE=" + c.pkg}
}

// prefill returns what xpyd is told of a prefill engine that it reaches at that URL.
func (c connector) prefill(url string, e *engine) string {
	if !c.bootstrap {
		return url
	}
	return fmt.Sprintf("%s bootstrap=%d", url, e.fleet.opts.ports+e.port+1000)
}

// place is where the blocks of a run lie: the port of the cache server, or an empty folder, which takes the place of
// that of an earlier run. Its name is new, so no engine is used that an earlier run has kept: it has blocks in its own
// cache that the folder lacks.
func (c connector) place(runDir string, port int) (string, error) {
	if c.store {
		return fmt.Sprint(port + storeServer().port + 1000), nil
	}
	if !strings.Contains(c.extra, "FOLDER") {
		return "", nil
	}
	pattern := fmt.Sprintf("kv-%d-*", port)
	old, err := filepath.Glob(filepath.Join(runDir, pattern))
	if err != nil {
		return "", fmt.Errorf("find old blocks: %w", err)
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("remove old blocks: %w", err)
		}
	}
	dir, err := os.MkdirTemp(runDir, pattern)
	if err != nil {
		return "", fmt.Errorf("make a folder for blocks: %w", err)
	}
	return dir, nil
}

// connectorNamed returns a row of the table.
func connectorNamed(name string) (connector, error) {
	var names []string
	for _, c := range connectors() {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	return connector{}, fmt.Errorf("connector %q: want one of %s", name, strings.Join(names, ", "))
}

// names reports whether each decode leg names the blocks of its prefill.
func (c connector) names() bool { return c.moves != "" || c.together }

// has reports whether a check is one of the connector's.
func (c connector) has(check string) bool { return c.checks == nil || slices.Contains(c.checks, check) }
