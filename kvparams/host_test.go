package kvparams

import "testing"

func TestAnotherHostKeepsEveryOtherByte(t *testing.T) {
	for name, c := range map[string]struct{ handle, want string }{
		"plain": {
			`{"do_remote_prefill":true,"remote_block_ids":[[7]],"remote_engine_id":"a","remote_request_id":"r","remote_host":"127.0.0.1","remote_port":1}`,
			`{"do_remote_prefill":true,"remote_block_ids":[[7]],"remote_engine_id":"a","remote_request_id":"r","remote_host":"p1.example","remote_port":1}`,
		},
		"other members of the same text": {
			`{"remote_engine_id":"localhost", "x":{"remote_host":"localhost"},"remote_request_id":"localhost","remote_host" : "localhost","do_remote_prefill":true,"remote_block_ids":[[7]],"remote_port":1,"y":"localhost"}`,
			`{"remote_engine_id":"localhost", "x":{"remote_host":"localhost"},"remote_request_id":"localhost","remote_host" : "p1.example","do_remote_prefill":true,"remote_block_ids":[[7]],"remote_port":1,"y":"localhost"}`,
		},
		"escapes": {
			`{"remote_host":"local\u0068ost","remote_engine_id":"local\u0068ost","remote_request_id":"r","do_remote_prefill":true,"remote_block_ids":[[7]],"remote_port":1}`,
			`{"remote_host":"p1.example","remote_engine_id":"local\u0068ost","remote_request_id":"r","do_remote_prefill":true,"remote_block_ids":[[7]],"remote_port":1}`,
		},
	} {
		a, err := nixl{}.ParseAnswer([]byte(`{"choices":[],"kv_transfer_params":` + c.handle + `,"metrics":null}`))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := a.Handle.WithHost("p1.example")
		if string(got.Raw) != c.want || string(got.RemoteHost) != "p1.example" {
			t.Errorf("%s: host %q in %s\nwant %s", name, got.RemoteHost, got.Raw, c.want)
		}
		if string(a.Handle.Raw) != c.handle {
			t.Errorf("%s: P's own handle became %s", name, a.Handle.Raw)
		}
		if again := got.WithHost("10.0.0.9"); string(again.RemoteHost) != "10.0.0.9" || string(again.WithHost("p1.example").Raw) != c.want {
			t.Errorf("%s: another host again: %s", name, again.Raw)
		}
	}
}
