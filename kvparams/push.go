package kvparams

// nixlPush is vLLM's NixlPushConnector. P describes itself in its answer, as in pull mode. D then
// registers its own blocks with P, and P writes into them. P finds the registration by the transfer_id that
// both legs carry. Releases up to 0.33 do not read that, and find it by the request's id without vLLM's random
// suffix. So both legs also need the same X-Request-Id, path and prompt. On the responses API vLLM reads the id
// in the body instead.
//
// The legs run one after the other. Decode must name P's engine id, which vLLM tells nobody before its
// first answer, and a D that is told of a P that then fails waits for it without a limit.
type nixlPush struct{ nixl }

func (nixlPush) Name() string { return "nixl-push" }

// Reclaim is a decode of one token. In push mode, P does not learn of a request that D rejects, because
// D sends no registration.
func (nixlPush) Reclaim() Reclaim { return ReclaimDrain }

// WaitsForTheDead is true. D does not fail a request whose registration P did not get: if it was sent in part, P
// could still write. Its watchdog (push_registration_timeout) only logs (seen with vLLM 0.32.0).
func (nixlPush) WaitsForTheDead() bool { return true }

// EitherRole is false, because nobody has run a vLLM that both pushes and is pushed to.
func (nixlPush) EitherRole() bool { return false }

func (nixlPush) EngineConfig(role Role) string { return engineConfig("NixlPushConnector", role) }

func (d nixlPush) AppendPrefill(dst Segments, r *Request, leg *Leg) Segments {
	return r.appendEdited(dst, d.reuse.oneToken(r), pushLead(r, leg), nixlPrefill[:len(nixlPrefill)-1], transferID(leg))
}

func (d nixlPush) AppendDecode(dst Segments, r *Request, h Handle, leg *Leg) Segments {
	if h.None() {
		return r.AppendPlain(dst)
	}
	return d.reuse.appendHandle(dst, r, h, pushLead(r, leg), transferID(leg))
}

// AppendDrain names P's leg, as the drain takes the place of its decode leg.
func (nixlPush) AppendDrain(dst Segments, r *Request, h Handle, legID string) Segments {
	leg := Leg{ID: legID}
	lead := drainLead()
	if r.api == Responses {
		lead = append(leg.text(responseID, "resp_", legID, `"`), lead...)
	}
	return r.appendEdited(dst, r.form().unmarked, lead, h.Raw[:len(h.Raw)-1], transferID(&leg))
}

// transferID is the last member of the leg's parameters, and their end. An attempt has its own, so no other one can be
// taken for it.
func transferID(leg *Leg) []byte { return leg.text(`,"transfer_id":"xfer-`, leg.ID, `"}`) }

const responseID = `,"request_id":"`

// pushLead is kvLead, with the leg's id before it where engines read that in the body. A client's own
// id comes before it, and engines take the last. Two clients could have the same one.
func pushLead(r *Request, leg *Leg) []byte {
	if r.api != Responses {
		return kvLead
	}
	return leg.text(responseID, "resp_", leg.ID, `"`, string(kvLead))
}

// pushNeeds differ from nixlNeeds in tp_size, which D reads unchecked.
var pushNeeds = append(nixlNeeds[:len(nixlNeeds):len(nixlNeeds)], need{"tp_size", needCount})

func (nixlPush) ParseAnswer(body []byte) (Answer, error) { return parseHandle(body, pushNeeds) }
