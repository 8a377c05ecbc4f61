package kvparams

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"xpyd/internal/racetest"
)

// TestParseKnowsEachByteInEachPlace: the scan reads strings by words of eight bytes, in which one byte
// can hide what the next one is.
func TestParseKnowsEachByteInEachPlace(t *testing.T) {
	racetest.SkipPure(t)
	const beside = "\x00\x1f !\"#[\\]\x7f\x80\xdb\xdc\xdd\xff"
	for c := range 256 {
		for place := range 9 {
			for _, next := range []byte(beside) {
				text := []byte(`{"a":"` + strings.Repeat("x", 18) + `"}`)
				text[6+place], text[6+place+1] = byte(c), next
				checkValidity(t, Chat, text)
			}
		}
	}
}

// jsonCases are bodies whose validity is easy to get wrong. encoding/json and UTF-8 decide what is
// valid.
var jsonCases = []string{
	``, ` `, `{`, `}`, `{}`, ` {} `, "{}\n", `{}{}`, `{} x`, "{}\x00", "\xef\xbb\xbf{}", `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`,
	`{"a":1 "b":2}`, `{"a" 1}`, `{a:1}`, `{'a':1}`, `{"a":1,,"b":2}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1 2]}`, `{"a":[}`,
	`{"a":[1}`, `{"a":{"b":1]}`, `{"a":1]`, `{"a":[]}`, `{"a":[ ]}`, `{"a":{ }}`, `{"a":[[],{}, [1] ]}`,
	`{"a":01}`, `{"a":-}`, `{"a":-0}`, `{"a":-01}`, `{"a":+1}`, `{"a":.5}`, `{"a":1.}`, `{"a":1.5e}`, `{"a":1e+}`, `{"a":1E-07}`,
	`{"a":1e400}`, `{"a":0x1}`, `{"a":NaN}`, `{"a":Infinity}`, `{"a":-Infinity}`, `{"a":1_0}`, `{"a":0.0e00}`, `{"a":1`,
	`{"a":tru}`, `{"a":trueX}`, `{"a":true}`, `{"a":nul`, `{"a":null}`, `{"a":False}`, `{"a":fals}`,
	`{"a":"`, `{"a":"\`, `{"a":"\"}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12G4"}`, `{"a":"\uD800"}`, `{"a":"\ud83d\ude00"}`,
	`{"a":"\uDE00\uD83D"}`, `{"a":"\b\f\n\r\t\/\\\""}`, `{"a":"\'"}`, "{\"a\":\"\t\"}", "{\"a\":\"1234567\n\"}", "{\"a\":\"\x7f\"}",
	"{\"a\":\"\x00\"}", "{\"a\n\":1}", "{\"a\":1\v}", "{\"a\":\u00a01}",
	"{\"a\":\"é€😀\"}", "{\"a\":\"\xff\"}", "{\"a\":\"\xc3\"}", "{\"a\":\"\xc0\xaf\"}", "{\"a\":\"\xe0\x80\xaf\"}", "{\"a\":\"\xed\xa0\x80\"}",
	"{\"a\":\"\xf0\x80\x80\x80\"}", "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"a\":\"\xf4\x8f\xbf\xbf\"}", "{\"a\":\"\xe2\x82\"}", "{\"a\":\"\xf0\x9f\x98\"}",
	"{\"\xff\":1}", "{\"a\":\xff}", "{\"12345678é12345678\\n12345678\":[1,\"12345678\"]}", "{\"a\":\"\xc3(\"}",
	`{"stream_options":{"include_usage":}}`, `{"prompt":[1,2,]}`, `{"prompt":[[1,],"a"]}`, `{"prompt":[1,[2,3]`, `{"vllm_xargs":{"a":1,}}`,
	`{"sampling_params":{"extra_args":{"a"}}}`, `{"sampling_params":{"extra_args":[}}`, `{"kv_transfer_params":nul}`, `{"kv_transfer_params":{}`,
	`{"model":}`, `{"prompt":[1 2]}`, `{"prompt":[-]}`, `{"prompt_embeds":["a",]}`, `{"vllm_xargs":{"kv_transfer_params":{ }}`,
}

func TestParseAcceptsWhatIsStrictJSON(t *testing.T) {
	for _, api := range []API{Chat, Completions} {
		for _, body := range jsonCases {
			checkValidity(t, api, []byte(body))
			// The same after other bytes, so that each case meets each place in a word.
			for pad := range 9 {
				checkValidity(t, api, []byte(strings.Repeat(" ", pad)+`{"k`+strings.Repeat("k", pad)+`":`+body+`}`))
			}
		}
	}
}

// checkValidity fails unless Parse accepts body exactly if it is a strict JSON object, apart from
// faults of fields.
func checkValidity(t testing.TB, api API, body []byte) {
	t.Helper()
	var r Request
	err := r.Parse(api, body)
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%q: %T is no *Error", body, err)
	}
	want := strict(body)
	switch {
	case err == nil && !want:
		t.Errorf("%q accepted, but is no strict JSON", body)
	case want && e != nil && e.Code == CodeInvalidJSON:
		t.Errorf("%q refused: %v", body, err)
	case want && !isObject(body) && (e == nil || e.Code != CodeInvalidType):
		t.Errorf("%q is no object, got %v", body, err)
	}
}

func TestDepth(t *testing.T) {
	nest := func(n int, open, end string) string { return strings.Repeat(open, n) + strings.Repeat(end, n) }
	cases := []struct {
		name, format, open, end string
		around                  int // containers of the format itself
	}{
		{"lists", `{"a":%s}`, "[", "]", 1},
		{"objects", `{"a":1,"b":%s}`, `{"x":`, "}", 1},
		{"prompt", `{"prompt":%s}`, "[", "]", 1},
		{"xargs", `{"vllm_xargs":{"a":%s}}`, "[", "]", 2},
		{"extra_args", `{"sampling_params":{"extra_args":{"a":%s}}}`, "[", "]", 3},
		{"stream_options", `{"stream_options":{"a":%s}}`, "[", "]", 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			body := func(levels int) []byte {
				inner := nest(levels-c.around, c.open, c.end)
				if c.name == "objects" {
					inner = strings.Repeat(c.open, levels-c.around) + "1" + strings.Repeat(c.end, levels-c.around)
				}
				return fmt.Appendf(nil, c.format, inner)
			}
			var r Request
			if err := r.Parse(Completions, body(512)); err != nil {
				t.Errorf("512 levels: %v", err)
			}
			err := r.Parse(Completions, body(513))
			if e := new(Error); !errors.As(err, &e) || e.Code != CodeInvalidJSON {
				t.Errorf("513 levels: %v", err)
			}
			if err := r.Parse(Completions, body(200_000)); err == nil {
				t.Error("200,000 levels accepted")
			}
		})
	}
}

func TestRunes(t *testing.T) {
	// Each lead byte is tried, with the others at the edges of every range that some lead byte
	// allows.
	edges := []byte{0x00, '"', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff}
	for lead := 0x80; lead < 0x100; lead++ {
		for _, second := range edges {
			for _, third := range []byte{0x7f, 0x80, 0xbf, 0xc0} {
				seq := []byte{byte(lead), second, third, 0x80}
				for n := 1; n <= len(seq); n++ {
					checkValidity(t, Chat, append(append([]byte(`{"a":"`), seq[:n]...), `"}`...))
				}
			}
		}
	}
}

func TestUnescape(t *testing.T) {
	cases := map[string]string{
		`max_\u0074okens`: "max_tokens", `\"\\\/\b\f\n\r\t`: "\"\\/\b\f\n\r\t", `\u00e9\u20AC`: "é€", `\ud83d\ude00`: "😀",
		`\ud83d`: "\ufffd", `\ude00x`: "\ufffdx", `\ud83d\u0041`: "\ufffdA", `\ud83dA`: "\ufffdA", `a\ud83d\ud83d\ude00`: "a\ufffd😀",
	}
	for in, want := range cases {
		if got := string(unescape(nil, []byte(in))); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
