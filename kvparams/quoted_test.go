package kvparams

import (
	"fmt"
	"testing"
)

// An engine that repeats its request shows what xpyd has added, if that holds something. The client's own bytes
// may be repeated, even if they look like that.
func TestQuoted(t *testing.T) {
	handle := Handle{Raw: []byte(`{"do_remote_prefill":true,"remote_block_ids":[[1,2]],"remote_host":"10.0.0.1","remote_port":5600,"tp_size":1,"note":"short"}`)}
	const encodings = `"c8eb":{"peer_host":"10.0.0.2","peer_port":5800}`
	nothing := map[string]bool{"nixl": true, "moriio": true} // of what their prefill legs add is more than a null
	for _, in := range []struct {
		api  API
		body string
	}{
		{Completions, `{}`},
		{Completions, `{"prompt":"x","stream":true}`}, // ends in what the prefill leg changes
		{Chat, ` {"kv_transfer_params":null,"messages":[{"role":"user","content":"\"kv_transfer_params\":{\"zone\":\"elsewhere\"}"}],"max_tokens":5} `},
		{Responses, `{"input":"x","store":true}`},
		{Generate, `{"token_ids":[1],"sampling_params":{"max_tokens":3}}`},
		{Messages, `{"messages":[],"max_tokens":3,"thinking":{"type":"enabled","budget_tokens":1024}}`},
	} {
		for _, name := range Names() {
			d, _ := Lookup(name)
			t.Run(fmt.Sprint(name, " ", in.body), func(t *testing.T) {
				r := parse(t, in.api, in.body)
				adds := d.HandleInAnswer() || d.Concurrent()
				prefill, decode := segmentsOf(t, d, r, handle)
				for leg, row := range map[string]struct {
					body      Segments
					told      bool
					namesPort bool
				}{
					"prefill": {prefill, adds && !nothing[name], false},
					"decode":  {decode, adds, d.HandleInAnswer() || name == "offloading-p2p"},
				} {
					encoded := r.AppendEncodings(row.body, []byte(encodings))
					for _, c := range []struct {
						leg  Segments
						text string
						want bool
					}{
						{row.body, join(row.body), row.told},
						{encoded, join(encoded), true},
						{encoded, in.body, false},
						{encoded, "max_tokens must be above 0", false},
						{encoded, "do_remote_decode, do_remote_prefill, remote_block_ids, tp_size, short", false},
						{encoded, "remote_port is 0", row.namesPort},
						{encoded, "my_remote_port is 0, remote_ports are 0", false},
						{encoded, "no route to 10.0.0.2", true},
					} {
						if got := r.Quoted([]byte(c.text), c.leg); got != c.want {
							t.Errorf("%s: %v for %s\nof %s", leg, got, c.text, join(c.leg))
						}
					}
				}
			})
		}
	}
}
