package kvparams

import (
	"strings"
	"testing"
)

// Each connector whose handle names a host of P can have another host put in its place, and nothing else changes.
func TestHostOfAHandleIsReplaced(t *testing.T) {
	const handle = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":"127.0.0.1:6301","remote_block_ids":[[7]],` +
		`"remote_request_id":"127.0.0.1","remote_port":5600,"remote_host":"127.0.0.1","remote_handshake_port":6301,"remote_notify_port":6401,` +
		`"transfer_id":"tx-1","tp_size":1}`
	seen := 0
	for _, name := range Names() {
		d, _ := Lookup(name)
		if !d.HandleInAnswer() {
			continue
		}
		seen++
		a, err := d.ParseAnswer([]byte(`{"choices":[],"kv_transfer_params":` + handle + `}`))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := strings.Replace(handle, `"remote_host":"127.0.0.1"`, `"remote_host":"10.0.0.9"`, 1)
		if h := a.Handle.WithHost("10.0.0.9"); string(h.Raw) != want || string(h.RemoteHost) != "10.0.0.9" {
			t.Errorf("%s: %s, host %s", name, h.Raw, h.RemoteHost)
		}
	}
	if seen < 4 {
		t.Errorf("%d connectors have a handle", seen)
	}
}
