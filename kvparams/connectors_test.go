package kvparams

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// legsOf is segmentsOf with the bodies in one piece.
func legsOf(t *testing.T, d Dialect, r *Request, h Handle) (prefill, decode string) {
	t.Helper()
	first, second := segmentsOf(t, d, r, h)
	return join(first), join(second)
}

// segmentsOf builds both legs of a request, with the id "a-1", against a prefill engine whose bootstrap
// server is at [::1]:8998.
func segmentsOf(t *testing.T, d Dialect, r *Request, h Handle) (prefill, decode Segments) {
	t.Helper()
	p, q := Leg{ID: "a-1"}, Leg{ID: "a-1"}
	if pairing, ok := d.(Pairing); ok {
		peer, err := pairing.ReadPeer("[::1]:8998", -1, []byte(`{"0":{"engine_id":"e-1","worker_addr":{"0":{"0":"tcp://h:1"}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		p.Peer, q.Peer = &peer, &peer
	}
	if directed, ok := d.(Directed); ok {
		p.Target = TargetAt("::1", directed.TargetPort(), 0)
	}
	// Both are built before either is read, as with legs that start together.
	return d.AppendPrefill(nil, r, &p), d.AppendDecode(nil, r, h, &q)
}

func TestLegsOfEachConnector(t *testing.T) {
	const in = `{"prompt":"x","stream":true,"max_tokens":5,"kv_transfer_params":null}`
	const one, own = `{"prompt":"x","stream":false,"max_tokens":1,"min_tokens":1`, `{"prompt":"x","stream":true,"max_tokens":5`
	const room = `,"bootstrap_host":"[::1]","bootstrap_port":8998,"bootstrap_room":ROOM}`
	handle := Handle{Raw: []byte(`{"h":1}`)}
	for _, c := range []struct {
		name            string
		handle          Handle
		prefill, decode string
	}{
		{"nixl", handle, one + `,"kv_transfer_params":` + string(nixlPrefill) + `}`, own + `,"kv_transfer_params":{"h":1}}`},
		{"nixl-push", handle, one + `,"kv_transfer_params":` + strings.TrimSuffix(string(nixlPrefill), "}") + `,"transfer_id":"xfer-a-1"}}`,
			own + `,"kv_transfer_params":{"h":1,"transfer_id":"xfer-a-1"}}`},
		{"shared-storage", Handle{}, one + `}`, own + `}`},
		{"offloading", Handle{}, one + `}`, own + `}`},
		{"offloading-p2p", Handle{}, one + `,"kv_transfer_params":{"remote_decoder":{"kv_request_id":"xfer-a-1"}}}`,
			own + `,"kv_transfer_params":{"remote_prefiller":{"kv_request_id":"xfer-a-1","remote_host":"[::1]","remote_port":8998}}}`},
		{"lmcache", Handle{}, one + `}`, own + `}`},
		{"mooncake-store", Handle{}, one + `}`, own + `}`},
		{"flexkv", Handle{}, one + `}`, own + `}`},
		{"hf3fs", Handle{}, one + `}`, own + `}`},
		{"store", Handle{}, one + `}`, own + `}`},
		{"mooncake", Handle{}, one + `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"xfer-a-1"}}`,
			own + `,"kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true,"remote_bootstrap_addr":"http://[::1]:8998",` +
				`"remote_engine_id":"e-1","transfer_id":"xfer-a-1"}}`},
		{"moriio", handle, one + `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null}}`,
			own + `,"kv_transfer_params":{"h":1}}`},
		{"moriio-write", handle, one + `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,` +
			`"remote_host":"[::1]","remote_handshake_port":6301,"remote_notify_port":6401}}`, own + `,"kv_transfer_params":{"h":1,"is_request_leader":true}}`},
		{"moriio-write", Handle{}, one + `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,` +
			`"remote_host":"[::1]","remote_handshake_port":6301,"remote_notify_port":6401}}`, own + `}`},
		{"sglang", Handle{}, one + room, own + room},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, ok := Lookup(c.name)
			if !ok {
				t.Fatal("unknown")
			}
			prefill, decode := legsOf(t, d, parse(t, Completions, in), c.handle)
			if roomOf(prefill) != roomOf(decode) {
				t.Errorf("two rooms: %s and %s", roomOf(prefill), roomOf(decode))
			}
			if got := strings.Replace(prefill, roomOf(prefill), "ROOM", 1); got != c.prefill && prefill != c.prefill {
				t.Errorf("prefill\n got %s\nwant %s", prefill, c.prefill)
			}
			if got := strings.Replace(decode, roomOf(decode), "ROOM", 1); got != c.decode && decode != c.decode {
				t.Errorf("decode\n got %s\nwant %s", decode, c.decode)
			}
		})
	}
}

// vLLM refuses a budget for thinking beside one token, unless the body says do_remote_decode. Only a budget
// is taken out, as other kinds of thinking are rendered into the prompt.
func TestThinkingInOneToken(t *testing.T) {
	const enabled, disabled = `"thinking":{"type":"enabled","budget_tokens":1024}`, `"thinking":{"type":"disabled"}`
	const in, one = `{"model":"m",%s,"max_tokens":2000,"messages":[]}`, `"max_tokens":1,"messages":[]`
	for thinking, kept := range map[string]string{enabled: "", disabled: disabled + ","} {
		r := parse(t, Messages, strings.Replace(in, "%s", thinking, 1))
		prefill, decode := legsOf(t, nixl{}, r, Handle{Raw: []byte(`{"h":1}`)})
		shared, _ := legsOf(t, sharedStorage, r, Handle{})
		for what, c := range map[string]struct{ got, want string }{
			"marked prefill": {prefill, `{"model":"m",` + thinking + "," + one},
			"decode":         {decode, `{"model":"m",` + thinking + `,"max_tokens":2000,`},
			"plain prefill":  {shared, `{"model":"m",` + kept + one},
			"drain":          {join(nixl{}.AppendDrain(nil, r, Handle{Raw: []byte(`{"h":1}`)}, "a-1")), `{"model":"m",` + kept + one},
		} {
			if !strings.HasPrefix(c.got, c.want) {
				t.Errorf("%s of %s\n got %s\nwant %s…", what, thinking, c.got, c.want)
			}
		}
	}
}

// A connector that knows nothing of this has legs that the engines take.
func TestOneTokenOfAnyConnector(t *testing.T) {
	const in = `{"model":"m","thinking":{"type":"enabled","budget_tokens":1024},"max_tokens":2000,"messages":[]}`
	for kv, kept := range map[string]bool{`{"put":"a-1"}`: false, `{"do_remote_decode":true,"transfer_id":"a-1"}`: true} {
		got := join(parse(t, Messages, in).appendOneToken(nil, []byte(kv)))
		if strings.Contains(got, "budget_tokens") != kept || !strings.HasSuffix(got, `"max_tokens":1,"messages":[],"kv_transfer_params":`+kv+"}") {
			t.Errorf("with %s: %s", kv, got)
		}
	}
}

// Engines that are paired by the request's id take it from the body of a response. A client's own could be
// another client's too.
func TestPushPairsResponsesByTheBody(t *testing.T) {
	const in = `{"input":"x","request_id":"mine","max_output_tokens":5,"store":true}`
	ans, err := nixlPush{}.ParseAnswer([]byte(`{"kv_transfer_params":` + goodHandle + `}`))
	if err != nil {
		t.Fatal(err)
	}
	r := parse(t, Responses, in)
	prefill, decode := legsOf(t, nixlPush{}, r, ans.Handle)
	drain := join(nixlPush{}.AppendDrain(nil, r, ans.Handle, "a-1"))
	const one = `{"input":"x","request_id":"mine","max_output_tokens":1,"store":false`
	for what, c := range map[string]struct{ got, want string }{
		"prefill": {prefill, one + `,"request_id":"resp_a-1","kv_transfer_params":{`},
		"decode":  {decode, in[:len(in)-1] + `,"request_id":"resp_a-1","kv_transfer_params":{`},
		"drain":   {drain, one + `,"request_id":"resp_a-1","cache_salt":"`},
	} {
		if !strings.HasPrefix(c.got, c.want) || !strings.HasSuffix(c.got, `,"transfer_id":"xfer-a-1"}}`) {
			t.Errorf("%s\n got %s\nwant %s…, with the transfer id of both legs", what, c.got, c.want)
		}
	}
}

// roomOf is the number of a room, or text that is in no body.
func roomOf(body string) string {
	_, after, ok := strings.Cut(body, `"bootstrap_room":`)
	if !ok {
		return "\x00"
	}
	return strings.TrimSuffix(after, "}")
}

// Legs of two attempts share no room, because a room is for one transfer.
func TestRoomsDiffer(t *testing.T) {
	d, r := sglang{}, parse(t, Completions, `{"prompt":"x"}`)
	seen := map[string]string{}
	for _, id := range []string{"a-1", "a-2", "b-1", "a-11"} {
		leg := Leg{ID: id, Peer: &Peer{Host: "h", Port: "1"}}
		room := roomOf(join(d.AppendPrefill(nil, r, &leg)))
		if other, ok := seen[room]; ok {
			t.Errorf("legs %s and %s have room %s", id, other, room)
		}
		seen[room] = id
	}
}

func TestMooncakeReadsItsBootstrapServer(t *testing.T) {
	for name, c := range map[string]struct {
		rank          int
		answer, fault string
	}{
		"whole engine":  {-1, `{"0":{"engine_id":"f0-1","worker_addr":{"0":{"0":"tcp://h:1"}}}}`, ""},
		"first rank":    {0, `{"0":{"engine_id":"f0-1"},"1":{"engine_id":"b"}}`, ""},
		"second rank":   {1, `{"0":{"engine_id":"a"},"1":{"engine_id":"f0-1"}}`, ""},
		"none so far":   {-1, `{}`, "bootstrap server h:8998: no engine has registered"},
		"two ranks":     {-1, `{"0":{"engine_id":"a"},"1":{"engine_id":"b"}}`, "bootstrap server h:8998: 2 data-parallel ranks, and the pool names none of them"},
		"no id":         {-1, `{"0":{}}`, "bootstrap server h:8998: rank 0 has no usable engine_id"},
		"another rank":  {-1, `{"3":{"engine_id":"a"}}`, "bootstrap server h:8998: rank 0 has no usable engine_id"},
		"not that rank": {1, `{"0":{"engine_id":"a"}}`, "bootstrap server h:8998: rank 1 has no usable engine_id"},
		"id of a quote": {-1, `{"0":{"engine_id":"a\",\"do_remote_decode\":true"}}`, "bootstrap server h:8998: rank 0 has no usable engine_id"},
		"no JSON":       {-1, `<html>`, "bootstrap server h:8998: its answer is no list of engines"},
	} {
		t.Run(name, func(t *testing.T) {
			peer, err := mooncake{}.ReadPeer("h:8998", c.rank, []byte(c.answer))
			switch {
			case c.fault == "" && (err != nil || peer != Peer{Host: "h", Port: "8998", EngineID: "f0-1"}):
				t.Errorf("%+v, %v", peer, err)
			case c.fault != "" && (err == nil || !strings.HasPrefix(err.Error(), c.fault)):
				t.Errorf("error %v, want %s", err, c.fault)
			}
		})
	}
}

// A rank of a prefill engine is named in the decode leg alone, by its number.
func TestSGLangNamesTheRank(t *testing.T) {
	r := parse(t, Completions, `{"prompt":"x"}`)
	for rank, want := range map[int]string{-1: "}", 0: `,"disagg_prefill_dp_rank":0}`, 12: `,"disagg_prefill_dp_rank":12}`} {
		peer, err := sglang{}.ReadPeer("h:8998", rank, nil)
		if err != nil {
			t.Fatal(err)
		}
		prefill := join(sglang{}.AppendPrefill(nil, r, &Leg{ID: "a-1", Peer: &peer}))
		decode := join(sglang{}.AppendDecode(nil, r, Handle{}, &Leg{ID: "a-1", Peer: &peer}))
		if room := roomOf(prefill); room == "" || !strings.HasSuffix(prefill, room+"}") || !strings.HasSuffix(decode, room+want) {
			t.Errorf("rank %d\n%s\n%s", rank, prefill, decode)
		}
	}
}

// The prefill leg says how many ranks the decode engine has, as P shakes hands with all of them at once.
func TestMoriioWriteSaysHowManyRanks(t *testing.T) {
	r := parse(t, Completions, `{"prompt":"x"}`)
	got := join(moriioWrite{}.AppendPrefill(nil, r, &Leg{ID: "a-1", Target: TargetAt("h", 6301, 8)}))
	if want := `"remote_host":"h","remote_handshake_port":6301,"remote_notify_port":6401,"remote_dp_size":8}}`; !strings.HasSuffix(got, want) {
		t.Errorf("%s, want …%s", got, want)
	}
}

// Each rank has a control socket, above that of the first.
func TestP2PNamesTheSocketOfARank(t *testing.T) {
	for rank, want := range map[int]string{-1: "65530", 0: "65530", 5: "65535", 6: ""} {
		peer, err := offloadingP2P{}.ReadPeer("[::1]:65530", rank, nil)
		if (err == nil) != (want != "") || peer.Port != want {
			t.Errorf("rank %d: %+v, %v", rank, peer, err)
		}
	}
}

// A prefill that has answered is given back by a request that a decode engine refuses, under the id
// that both legs had.
func TestMooncakeGivesBack(t *testing.T) {
	r := parse(t, Chat, `{"model":"m","messages":[1]}`)
	leg := Leg{ID: "a-1", Peer: &Peer{Host: "h", Port: "8998", EngineID: "e"}}
	h := mooncake{}.Pair(&leg)
	want := `{"model":"m","prompt":"a","max_tokens":0,"kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true,` +
		`"remote_bootstrap_addr":"http://h:8998","remote_engine_id":"e","transfer_id":"xfer-a-1"}}`
	if got := join(mooncake{}.AppendRelease(nil, r, h)); got != want {
		t.Errorf("release\n got %s\nwant %s", got, want)
	}
	if got := join(mooncake{}.AppendDrain(nil, r, h, "a-1")); !strings.Contains(got, `"max_tokens":1`) || !strings.Contains(got, string(h.Raw)) {
		t.Errorf("drain %s", got)
	}
}

func TestNeedsOfEachHandle(t *testing.T) {
	const push = goodHandle
	const read = `{"do_remote_prefill":true,"remote_block_ids":[[1,2]],"remote_engine_id":"e","remote_host":"h",` +
		`"remote_handshake_port":6301,"remote_notify_port":61005,"transfer_id":"t"}`
	for _, c := range []struct {
		dialect         Dialect
		handle, without string // a sound handle, and a member of it that is missed
	}{
		{nixlPush{}, push, "tp_size"}, {nixlPush{}, push, "remote_request_id"}, {nixlPush{}, push, "remote_port"},
		{moriio{}, read, "transfer_id"}, {moriio{}, read, "remote_handshake_port"}, {moriio{}, read, "remote_notify_port"},
		{moriio{}, read, "remote_block_ids"}, {moriio{}, read, "remote_engine_id"},
	} {
		t.Run(c.dialect.Name()+"/"+c.without, func(t *testing.T) {
			a, err := c.dialect.ParseAnswer([]byte(`{"usage":{"prompt_tokens":3},"kv_transfer_params":` + c.handle + `}`))
			if err != nil || string(a.Handle.Raw) != c.handle || a.PromptTokens != 3 {
				t.Fatalf("%+v, %v", a, err)
			}
			broken := strings.Replace(c.handle, `"`+c.without+`"`, `"x"`, 1)
			if broken == c.handle {
				t.Fatalf("no member %s", c.without)
			}
			_, err = c.dialect.ParseAnswer([]byte(`{"kv_transfer_params":` + broken + `}`))
			if err == nil || !strings.Contains(err.Error(), c.without) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// An answer without a handle still tells what P had cached.
func TestFiguresWithoutAHandle(t *testing.T) {
	for _, d := range []Dialect{sharedStorage, lmcache, mooncake{}, sglang{}} {
		a, err := d.ParseAnswer([]byte(`{"kv_transfer_params":{"any":[1]},"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}`))
		if err != nil || !a.Handle.None() || a.PromptTokens != 9 || a.CachedTokens != 4 {
			t.Errorf("%s: %+v, %v", d.Name(), a, err)
		}
		if _, err := d.ParseAnswer([]byte(`{"usage":`)); err == nil {
			t.Errorf("%s: half an answer passes", d.Name())
		}
	}
}

// Engines of MoRIIO write unless their configuration says otherwise, and vLLM 0.32 ignores the variable.
func TestMoriioEnginesAreToldToRead(t *testing.T) {
	want := `--kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"read_mode":true}}'`
	if got := (moriio{}).EngineConfig(Decodes); got != want {
		t.Errorf("%s", got)
	}
}

// On the responses API, which has no min_tokens, the token of the prefill leg ends no text where that would keep the blocks.
func TestResponsesDoNotEndInOneToken(t *testing.T) {
	const asked = `{"input":"x","ignore_eos":false,"stop_token_ids":[5,6],"stream":true}`
	const one = `"stream":false,"max_output_tokens":1,"store":false,`
	for name, want := range map[string]string{
		"mooncake": `{"input":"x","ignore_eos":true,"stop_token_ids":[],` + one, "moriio": `{"input":"x","ignore_eos":true,"stop_token_ids":[],` + one,
		"nixl": `{"input":"x","ignore_eos":false,"stop_token_ids":[5,6],` + one,
	} {
		d, _ := Lookup(name)
		prefill, decode := legsOf(t, d, parse(t, Responses, asked), Handle{Raw: []byte(`{"h":1}`)})
		if !strings.HasPrefix(prefill, want) || !strings.HasPrefix(decode, asked[:len(asked)-1]+`,"kv_transfer_params":`) {
			t.Errorf("%s: prefill %s\ndecode %s", name, prefill, decode)
		}
	}
	prefill, _ := legsOf(t, mooncake{}, parse(t, Responses, `{"input":"x"}`), Handle{})
	if want := `{"input":"x","max_output_tokens":1,"store":false,"ignore_eos":true,"kv_transfer_params":{"do_remote_decode":true,`; !strings.HasPrefix(prefill, want) {
		t.Errorf("prefill %s\nwant %s…", prefill, want)
	}
	for in, want := range map[string]Reason{
		`{"ignore_eos":true,"stop_token_ids":null}`: ReasonNone, `{"ignore_eos":null}`: ReasonInvalidFields, `{"ignore_eos":1}`: ReasonInvalidFields,
		`{"stop_token_ids":7}`: ReasonInvalidFields, `{"stop_token_ids":[]}`: ReasonNone,
	} {
		if got := parse(t, Responses, in).Bypass(); got != want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
	if got := parse(t, Chat, `{"ignore_eos":null,"stop_token_ids":7}`).Bypass(); got != ReasonNone {
		t.Errorf("chat: %v", got)
	}
}

// Whose engines hand blocks over only for a request that max_tokens has ended, and what an answer says of that.
func TestAnswersThatEndedTheText(t *testing.T) {
	const messages, responses = `{"stop_reason":"%s"}`, `{"status":"%s"}`
	for name, waits := range map[string]bool{"mooncake": true, "moriio": true, "moriio-write": true, "nixl": false, "nixl-push": false, "offloading-p2p": false, "sglang": false} {
		d, _ := Lookup(name)
		for in, ended := range map[string]bool{
			fmt.Sprintf(messages, "end_turn"): true, fmt.Sprintf(responses, "completed"): true,
			fmt.Sprintf(messages, "max_tokens"): false, fmt.Sprintf(messages, "stop_sequence"): false, fmt.Sprintf(responses, "incomplete"): false,
			`{"choices":[{"finish_reason":"stop"}]}`: false, `{"output":[{"status":"completed"}]}`: false, `{"stop_reason":null}`: false,
		} {
			_, err := d.ParseAnswer([]byte(in))
			var ae *AnswerError
			if got := errors.As(err, &ae) && ae.Code == CodeEnded; got != (ended && waits) || err != nil && !got {
				t.Errorf("%s, %s: %v", name, in, err)
			}
		}
	}
	in := `{"stop_reason":"end_turn","kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[[1,2]],"remote_engine_id":"e",` +
		`"remote_host":"h","remote_handshake_port":6301,"remote_notify_port":61005,"transfer_id":"t"}}`
	if ans, err := (moriio{}).ParseAnswer([]byte(in)); err != nil || ans.Handle.None() {
		t.Errorf("an answer with a handle: %v", err)
	}
}
