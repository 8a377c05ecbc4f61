package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"xpyd/sim"
)

// The encode pool is for the engines of every connector. What it says goes to one leg of a request, that of
// the engine which computes the prompt.
func TestEncodePoolOfTwoConnectors(t *testing.T) {
	eachMix(t, func(t *testing.T, other sim.Connector) {
		r := mixedRig(t, rigOptions{prefill: 4, decode: 4, encode: 2}, sim.ConnectorNixl, other)
		const chats = 8
		for i := range chats {
			items := []string{picture(fmt.Sprintf("%04d", i)), picture(fmt.Sprintf("1%03d", i))}
			r.expectMedia(r.post("/v1/chat/completions", withMedia(fmt.Sprintf(`,"seed":%d`, i), items...)), items...)
		}
		r.expectEncodings(r.prefill, 2*chats, 0)
		r.expectEncodings([]*sim.Engine{r.decode[0], r.decode[2]}, 0, 0) // those that pull all of a prompt by a handle
		if pairs := r.expectPairs(2); pairs[0] != chats/2 || pairs[1] != chats/2 {
			t.Errorf("%d requests by nixl and %d by %s, of %d", pairs[0], pairs[1], other, chats)
		}
		for _, e := range r.decode {
			for _, rec := range e.Requests() {
				if bytes.Contains(rec.Body, []byte("ec_transfer_params")) {
					t.Errorf("%s has the encodings too: %s", e.Name(), rec.Body)
				}
			}
		}
		for _, e := range r.encode {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 { // one for each connector
			item := picture(fmt.Sprintf("2%03d", i))
			r.expectMedia(r.post("/v1/chat/completions", withMedia("", item)), item)
		}
		r.expectEncodings(r.prefill, 2*chats, 2)
		r.expectNothingHeld()
	})
}

// Encode engines that serve the model of one connector get nothing of the other's.
func TestEncodePoolOfOneOfTwoModels(t *testing.T) {
	eachMix(t, func(t *testing.T, other sim.Connector) {
		r := mixedRig(t, rigOptions{encode: 1, engine: func(o *sim.Options) { o.Model = "model-of-" + string(o.Connector) }}, sim.ConnectorNixl, other)
		r.await("both models listed", func() bool {
			a := r.send("GET", "/v1/models", "")
			return strings.Contains(a.body, "model-of-nixl") && strings.Contains(a.body, "model-of-"+string(other))
		})
		for i, model := range []string{"nixl", string(other)} {
			item := picture(fmt.Sprintf("%04d", i))
			body := strings.Replace(withMedia("", item), `"model":"sim"`, `"model":"model-of-`+model+`"`, 1)
			r.expectMedia(r.post("/v1/chat/completions", body), item)
		}
		r.expectEncodings(r.prefill[:1], 1, 0)
		r.expectEncodings(r.prefill[1:], 0, 1)
		if recs := legs(r.encode, "encode"); len(recs) != 1 {
			t.Errorf("encode legs %+v", recs)
		}
		r.expectNothingHeld()
	})
}
