package proxy_test

import (
	"bytes"

	"xpyd/kvparams"
)

// pushDialect is no connector of vLLM. It has both legs at once, paired by an id of the proxy, no
// handle in the answer, and a decode that waits for its prefill. The rest of it is NIXL's.
type pushDialect struct{ kvparams.Dialect }

func newPushDialect() kvparams.Dialect {
	nixl, ok := kvparams.Lookup("nixl")
	if !ok {
		panic("BUG: no connector nixl")
	}
	return pushDialect{nixl}
}

func (pushDialect) Name() string              { return "push" }
func (pushDialect) Concurrent() bool          { return true }
func (pushDialect) HandleInAnswer() bool      { return false }
func (pushDialect) DecodeOnlySafe() bool      { return false }
func (pushDialect) Reclaim() kvparams.Reclaim { return kvparams.ReclaimLease }
func transferID(leg *kvparams.Leg) string     { return `"transfer_id":"xfer-` + leg.ID + `"` }

func (d pushDialect) AppendPrefill(dst kvparams.Segments, r *kvparams.Request, leg *kvparams.Leg) kvparams.Segments {
	const flag = `"do_remote_decode":true`
	body := bytes.Join(d.Dialect.AppendPrefill(nil, r, leg), nil)
	if !bytes.Contains(body, []byte(flag)) {
		panic("BUG: NIXL's prefill has another form than this dialect knows")
	}
	return append(dst, bytes.Replace(body, []byte(flag), []byte(flag+","+transferID(leg)), 1))
}

func (d pushDialect) AppendDecode(dst kvparams.Segments, r *kvparams.Request, _ kvparams.Handle, leg *kvparams.Leg) kvparams.Segments {
	params := `{"do_remote_decode":false,"do_remote_prefill":true,` + transferID(leg) + `}`
	return d.Dialect.AppendDecode(dst, r, kvparams.Handle{Raw: []byte(params)}, leg)
}

func (d pushDialect) ParseAnswer(body []byte) (kvparams.Answer, error) {
	a, err := d.Dialect.ParseAnswer(body)
	a.Handle = kvparams.Handle{}
	return a, err
}

// AppendRelease and AppendDrain append nothing, because there is no handle to end.
func (pushDialect) AppendRelease(dst kvparams.Segments, _ *kvparams.Request, _ kvparams.Handle) kvparams.Segments {
	return dst
}

func (pushDialect) AppendDrain(dst kvparams.Segments, _ *kvparams.Request, _ kvparams.Handle, _ string) kvparams.Segments {
	return dst
}
