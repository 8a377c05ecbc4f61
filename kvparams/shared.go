package kvparams

// shared is a connector that keeps KV where both engines look, under a key made of the tokens: a
// folder, an object store, or a cache server. P stores the prompt's blocks before it answers. D finds
// them by itself, and computes what it does not find. Nothing is pinned for D, so there is no handle.
type shared struct {
	noHandle
	name, connector string
	fragile         bool // see Fragile
}

// These are the connectors of this kind. LMCache 0.5.6 tells vLLM 0.32's scheduler that it has loaded a request which is
// gone by then (LMCacheMPConnector), and the scheduler's assertion ends the engine.
var (
	sharedStorage = shared{name: "shared-storage", connector: "ExampleConnector"}
	offloading    = shared{name: "offloading", connector: "OffloadingConnector"}
	lmcache       = shared{name: "lmcache", connector: "LMCacheMPConnector", fragile: true}
	mooncakeStore = shared{name: "mooncake-store", connector: "MooncakeStoreConnector"}
	flexKV        = shared{name: "flexkv", connector: "FlexKVConnectorV1"}
	hf3fs         = shared{name: "hf3fs", connector: "HF3FSKVConnector"}
	anyStore      = shared{name: "store"} // whose engines have any other such connector
)

func (s shared) Name() string       { return s.name }
func (s shared) DiesOfACut() bool   { return s.fragile }
func (shared) Concurrent() bool     { return false }
func (shared) DecodeOnlySafe() bool { return true }
func (shared) EitherRole() bool     { return true }
func (shared) Reclaim() Reclaim     { return ReclaimNone }

// EngineConfig is the same for both roles, because each engine stores what it computes.
func (s shared) EngineConfig(Role) string {
	if s.connector == "" {
		return "--kv-transfer-config with a connector that finds KV by the prompt's tokens"
	}
	return `--kv-transfer-config '{"kv_connector":"` + s.connector + `","kv_role":"kv_both"}'`
}

func (shared) AppendPrefill(dst Segments, r *Request, _ *Leg) Segments {
	return r.appendEdited(dst, r.form().unmarked, nil, nil)
}

func (shared) AppendDecode(dst Segments, r *Request, _ Handle, _ *Leg) Segments {
	return r.AppendPlain(dst)
}
