package kvparams

// nixlPush is vLLM's NixlPushConnector. P describes itself in its answer, as in pull mode. D then
// registers its own blocks with P, and P writes into them. P finds the registration by the request's
// id without vLLM's random suffix, so both legs need the same X-Request-Id, path and prompt.
//
// The legs run one after the other. Decode must name P's engine id, which vLLM 0.32 tells nobody
// before its first answer.
type nixlPush struct{ nixl }

func (nixlPush) Name() string       { return "nixl-push" }
func (nixlPush) Experimental() bool { return false }

// Reclaim is a decode of one token. In push mode a request that D rejects does not reach P: D keeps
// the registration to itself.
func (nixlPush) Reclaim() Reclaim { return ReclaimDrain }

func (nixlPush) EngineConfig(role Role) string { return engineConfig("NixlPushConnector", role) }

// pushNeeds differ from nixlNeeds in tp_size, which D reads unchecked.
var pushNeeds = append(nixlNeeds[:len(nixlNeeds):len(nixlNeeds)], need{"tp_size", needCount})

func (nixlPush) ParseAnswer(body []byte) (Answer, error) { return parseHandle(body, pushNeeds) }
