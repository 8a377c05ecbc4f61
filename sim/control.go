package sim

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// control serves /sim/*, which no vLLM has. Tests and scripts use it to ask an engine in another
// process. Members are in snake_case.
//
//	GET  /sim/ledger    the Ledger
//	GET  /sim/requests  the Records, oldest first
//	POST /sim/fault     a Fault, or its text form as a JSON string; {} clears it
//	POST /sim/speed     {"transfer_per_block":"500µs"}: Engine.SetTransferPerBlock
//	POST /sim/restart   answers, then kills the engine and starts it again, with a new engine id
//	POST /sim/reset     clears the fault and forgets requests and freed entries; pinned and cached blocks stay
func (c *core) control(x *exchange) {
	switch x.req.Method + " " + x.req.URL.Path {
	case "GET /sim/ledger":
		x.marshal(c.ledger.snapshot())
	case "GET /sim/requests":
		x.marshal(c.e.records.list())
	case "POST /sim/fault":
		c.controlFault(x)
	case "POST /sim/speed":
		c.controlSpeed(x)
	case "POST /sim/restart":
		x.last = true
		x.plain(http.StatusOK, "{}")
		x.hangup() // otherwise the death would reset the connection, and the answer might be lost
		c.e.restartSoon()
	case "POST /sim/reset":
		c.e.records.clear()
		c.ledger.forget()
		if err := c.e.SetFault(Fault{}); err != nil {
			x.fail(badRequest("", "%v", err))
			return
		}
		x.plain(http.StatusOK, "{}")
	default:
		x.plain(http.StatusNotFound, `{"detail":"Not Found"}`)
	}
}

func (c *core) controlFault(x *exchange) {
	var f Fault
	var text string
	var err error
	if json.Unmarshal(x.body, &text) == nil {
		f, err = ParseFault(text)
	} else {
		in := json.NewDecoder(bytes.NewReader(x.body))
		in.DisallowUnknownFields()
		err = in.Decode(&f)
	}
	if err == nil {
		err = c.e.SetFault(f)
	}
	if err != nil {
		x.fail(badRequest("", "%v", err))
		return
	}
	x.plain(http.StatusOK, "{}")
}

func (c *core) controlSpeed(x *exchange) {
	var speed struct {
		TransferPerBlock string `json:"transfer_per_block"`
	}
	in := json.NewDecoder(bytes.NewReader(x.body))
	in.DisallowUnknownFields()
	err := in.Decode(&speed)
	d, bad := time.ParseDuration(speed.TransferPerBlock)
	if err == nil {
		err = bad
	}
	if err != nil {
		x.fail(badRequest("", "%v", err))
		return
	}
	c.e.SetTransferPerBlock(d)
	x.plain(http.StatusOK, "{}")
}

func (x *exchange) marshal(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: a snapshot has no JSON: " + err.Error())
	}
	x.json(b)
}
