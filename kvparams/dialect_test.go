package kvparams

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	if got := Names(); len(got) == 0 || got[0] != "nixl" || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
		t.Errorf("Names %v", got)
	}
	for _, name := range Names() {
		if d, ok := Lookup(name); !ok || d.Name() != name {
			t.Errorf("Lookup(%q) = %v, %v", name, d, ok)
		}
	}
	for _, name := range []string{"", "NIXL", testDialect().Name()} {
		if d, ok := Lookup(name); ok {
			t.Errorf("Lookup(%q) = %v", name, d)
		}
	}
}

func TestNixlTraits(t *testing.T) {
	d, _ := Lookup("nixl")
	if d.Concurrent() || !d.HandleInAnswer() || !d.DecodeOnlySafe() || d.Reclaim() != ReclaimReject {
		t.Error("NIXL pull is serial, its handle in the answer, decode-only safe, reclaimed by rejection")
	}
}

func TestReleaseAndDrain(t *testing.T) {
	h := Handle{Raw: []byte(goodHandle)}
	cases := []struct {
		name, in, release, drain string
		api                      API
	}{
		{"chat", `{"model":"a\/b","messages":[1],"stream":true,"stream_options":{},"min_tokens":4,"max_tokens":9}`,
			`{"model":"a\/b","prompt":"a","max_tokens":0,"kv_transfer_params":` + goodHandle + `}`,
			`{"model":"a\/b","messages":[1],"stream":false,"min_tokens":1,"max_tokens":1,"max_completion_tokens":1,"cache_salt":"SALT","kv_transfer_params":` + goodHandle + `}`,
			Chat},
		{"completions without a model", `{"prompt":"x","kv_transfer_params":null}`,
			`{"prompt":"a","max_tokens":0,"kv_transfer_params":` + goodHandle + `}`,
			`{"prompt":"x","max_tokens":1,"min_tokens":1,"cache_salt":"SALT","kv_transfer_params":` + goodHandle + `}`, Completions},
		{"model null", `{"model":null,"prompt":"x"}`,
			`{"prompt":"a","max_tokens":0,"kv_transfer_params":` + goodHandle + `}`,
			`{"model":null,"prompt":"x","max_tokens":1,"min_tokens":1,"cache_salt":"SALT","kv_transfer_params":` + goodHandle + `}`, Completions},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, c.api, c.in)
			if got := join(nixl{}.AppendRelease(nil, r, h)); got != c.release {
				t.Errorf("release\n got %s\nwant %s", got, c.release)
			}
			got := join(nixl{}.AppendDrain(nil, r, h, "a-1"))
			salt := saltOf(t, []byte(got))
			if want := strings.Replace(c.drain, "SALT", salt, 1); got != want {
				t.Errorf("drain\n got %s\nwant %s", got, want)
			}
			if again := saltOf(t, []byte(join(nixl{}.AppendDrain(nil, r, h, "a-1")))); again == salt {
				t.Errorf("two drains under the salt %s", salt)
			}
		})
	}
}

// saltOf is the cache_salt of a drain's body: 128 bits in hex.
func saltOf(t *testing.T, body []byte) string {
	t.Helper()
	salt := regexp.MustCompile(`"cache_salt":"([0-9a-f]{32})","kv_transfer_params":`).FindAllSubmatch(body, -1)
	if len(salt) == 0 {
		t.Fatalf("no random cache_salt before the handle: %s", body)
	}
	return string(salt[len(salt)-1][1])
}

// Each body of an attempt stays right while the other is built, and both carry one id.
func TestPushDialect(t *testing.T) {
	d := testDialect()
	if !d.Concurrent() || d.HandleInAnswer() || d.DecodeOnlySafe() || d.Reclaim() != ReclaimLease {
		t.Error("traits")
	}
	r := parse(t, Completions, `{"prompt":"x","stream":true,"max_tokens":5}`)
	leg := Leg{ID: "req-1.a_b"}
	prefill := d.AppendPrefill(nil, r, &leg)
	decode := d.AppendDecode(nil, r, Handle{}, &leg)
	if got, want := join(prefill), `{"prompt":"x","stream":false,"max_tokens":1,"min_tokens":1,"kv_transfer_params":`+
		`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"xfer-req-1.a_b"}}`; got != want {
		t.Errorf("prefill\n got %s\nwant %s", got, want)
	}
	if got, want := join(decode), `{"prompt":"x","stream":true,"max_tokens":5,"kv_transfer_params":`+
		`{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":"xfer-req-1.a_b"}}`; got != want {
		t.Errorf("decode\n got %s\nwant %s", got, want)
	}
	a, err := d.ParseAnswer(testdata(t, "p-chat.json"))
	if err != nil || !a.Handle.None() || a.PromptTokens != 225 {
		t.Errorf("answer %+v, %v", a, err)
	}
	if len(d.AppendRelease(nil, r, Handle{})) != 0 || len(d.AppendDrain(nil, r, Handle{}, "a-1")) != 0 {
		t.Error("there is nothing to give back")
	}
}
