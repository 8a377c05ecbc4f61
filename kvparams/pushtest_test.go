package kvparams

// pushTest is not a connector of vLLM. It keeps the interface open for connectors that send both
// legs at once and pair them by an id of the proxy. It cannot be configured.
type pushTest struct{}

// testDialect differs from NIXL. It has both legs at once, no handle in the answer, and a decode
// that waits for its prefill.
func testDialect() Dialect { return pushTest{} }

func (pushTest) Name() string         { return "pushtest" }
func (pushTest) Concurrent() bool     { return true }
func (pushTest) HandleInAnswer() bool { return false }
func (pushTest) DecodeOnlySafe() bool { return false }
func (pushTest) Reclaim() Reclaim     { return ReclaimLease }

func (pushTest) EngineConfig(Role) string { return "" }

func (d pushTest) AppendPrefill(dst Segments, r *Request, leg *Leg) Segments {
	return r.appendOneToken(dst, d.params(leg, `{"do_remote_decode":true,"do_remote_prefill":false`))
}

func (d pushTest) AppendDecode(dst Segments, r *Request, _ Handle, leg *Leg) Segments {
	return r.appendWith(dst, d.params(leg, `{"do_remote_decode":false,"do_remote_prefill":true`))
}

func (pushTest) params(leg *Leg, flags string) []byte {
	first := len(leg.Scratch)
	leg.Scratch = append(leg.Scratch, flags...)
	leg.Scratch = append(leg.Scratch, `,"transfer_id":"xfer-`...)
	leg.Scratch = append(leg.Scratch, leg.ID...)
	leg.Scratch = append(leg.Scratch, `"}`...)
	return leg.Scratch[first:]
}

// AppendRelease and AppendDrain append nothing, because there is no handle to end.
func (pushTest) AppendRelease(dst Segments, _ *Request, _ Handle) Segments         { return dst }
func (pushTest) AppendDrain(dst Segments, _ *Request, _ Handle, _ string) Segments { return dst }

func (pushTest) ParseAnswer(body []byte) (Answer, error) { return parseFigures(body) }
