package kvparams

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"xpyd/internal/racetest"
)

const ownHandle = `{"do_remote_prefill":false,"remote_block_ids":[[1,2],[3]],"remote_host":"10.0.0.7}\"{","deep":{"a":[{}]}}`

const ownEncodings = `{"8f3a":{"item_indices":[0],"metadata":{"image_grid_thw":[[1,4,4]]},"peer_host":"10.0.0.7","peer_port":5601}}`

// hideInPieces passes an answer through a Hider, cut at the given offsets.
func hideInPieces(answer string, cuts ...int) (out string, found bool) {
	var h Hider
	var b strings.Builder
	var rest []byte
	last := 0
	for _, cut := range append(cuts, len(answer)) {
		rest = append(rest, answer[last:cut]...)
		n := h.Hide(rest)
		b.Write(rest[:n])
		rest = append([]byte{}, rest[n:]...)
		last = cut
	}
	b.Write(rest)
	return b.String(), h.Handle()
}

func TestHandleOfALargeAnswerIsHiddenHoweverItIsCut(t *testing.T) {
	racetest.SkipPure(t)
	for _, c := range []struct {
		name, answer string
		hidden       bool
	}{
		{"last member", `{"choices":[{"text":"x"}],"kv_transfer_params":` + ownHandle + `}`, true},
		{"first member", `{"kv_transfer_params":` + ownHandle + `,"choices":[]}`, true},
		{"spaces and lines", "{ \"a\" : 1 ,\r\n\t\"kv_transfer_params\" \n: \t" + ownHandle + " \n, \"b\" : [ ] }", true},
		{"escaped name", `{"kv\u005ftransfer_par\u0061ms":` + ownHandle + `}`, true},
		{"twice", `{"kv_transfer_params":` + ownHandle + `,"x":{},"kv_transfer_params":` + ownHandle + `}`, true},
		{"a list", `{"kv_transfer_params":[["10.0.0.7]"],{"a":"]"}],"b":1}`, true},
		{"a string", `{"kv_transfer_params":"10.0.0.7\\\",","b":1}`, true},
		{"encodings", `{"choices":[],"ec_transfer_params":` + ownEncodings + `,"b":1}`, true},
		{"encodings, escaped name", `{"\u0065c_transfer_params":` + ownEncodings + `}`, true},
		{"handle behind encodings", `{"ec_transfer_params":` + ownEncodings + `,"kv_transfer_params":` + ownHandle + `}`, true},
		{"null", `{"kv_transfer_params":null,"ec_transfer_params":null,"b":{"c":[]}}`, false},
		{"empty", `{"kv_transfer_params":{},"b":{"c":"10.0.0.7"}}`, false},
		{"a number", `{"kv_transfer_params":17,"b":"10.0.0.7"}`, false},
		{"in a text", `{"text":"\"kv_transfer_params\":{\"remote_host\":\"10.0.0.7\"}","b":1}`, false},
		{"a text that names it", `{"text":"kv_transfer_params","b":{"remote_host":"10.0.0.7"}}`, false},
		{"inside another member", `{"echo":{"kv_transfer_params":{"remote_host":"10.0.0.7"}},"b":["kv_transfer_params",{"kv_transfer_params":[1,2]}]}`, false},
		{"longer name", `{"kv_transfer_params_":{"a":"10.0.0.7"},"_kv_transfer_params":{"a":1}}`, false},
		{"a long name", `{"` + strings.Repeat("kv_transfer_params", 9) + `":{"a":"10.0.0.7"}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole, found := hideInPieces(c.answer)
			// Only a handle says that decode keeps blocks.
			if handle := c.hidden && !strings.HasPrefix(c.name, "encodings"); found != handle || strings.Contains(whole, "10.0.0.7") == c.hidden && strings.Contains(c.answer, "10.0.0.7") {
				t.Fatalf("found %v: %s", found, whole)
			}
			if len(whole) != len(c.answer) {
				t.Fatalf("%d bytes became %d", len(c.answer), len(whole))
			}
			if !c.hidden && whole != c.answer {
				t.Fatalf("changed without need: %s", whole)
			}
			var m map[string]any
			if err := json.Unmarshal([]byte(whole), &m); err != nil {
				t.Fatalf("%v: %s", err, whole)
			}
			if c.hidden && (m["kv_transfer_params"] != nil || m["ec_transfer_params"] != nil) {
				t.Fatalf("not null: %s", whole)
			}
			for i := range len(c.answer) + 1 {
				for _, j := range []int{i, min(i+1, len(c.answer)), min(i+7, len(c.answer))} {
					if cut, _ := hideInPieces(c.answer, i, j); cut != whole {
						t.Fatalf("cut at %d and %d: %s, whole %s", i, j, cut, whole)
					}
				}
			}
			var every []int
			for i := range c.answer {
				every = append(every, i)
			}
			if cut, _ := hideInPieces(c.answer, every...); cut != whole {
				t.Fatalf("byte by byte: %s, whole %s", cut, whole)
			}
		})
	}
}

// What a large answer says of its tokens is read as it passes.
func TestUsageOfALargeAnswerHoweverItIsCut(t *testing.T) {
	for in, want := range map[string]Usage{
		`{"choices":[{"text":"\"usage\":{\"prompt_tokens\":9}"}],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}},"kv_transfer_params":{"a":"usage"}}`: {7, 3, 2},
		`{"usage" : { "completion_tokens" : 3 , "x":"}" } , "choices":[{"usage":{"completion_tokens":9}}]}`:                                                                                         {-1, 3, -1},
		`{"usage":null,"choices":[{"usage":{"completion_tokens":9}}]}`:                                                                                                                              NoUsage(),
		`{"usage":[{"completion_tokens":9}]}`:                                            NoUsage(),
		`{"a":"usage","b":{"completion_tokens":9}}`:                                      NoUsage(),
		`{"usage":{"completion_tokens":9`:                                                NoUsage(),
		`{"usage":{"completion_tokens":9,"x":"` + strings.Repeat("x", mostUsage) + `"}}`: NoUsage(),
	} {
		for piece := 1; piece <= len(in); piece += 1 + piece/8 {
			var h Hider
			var rest []byte
			for at := 0; at < len(in); at += piece {
				b := append(rest, in[at:min(at+piece, len(in))]...)
				rest = slices.Clone(b[h.Hide(b):])
			}
			if h.Hide(rest); h.Usage() != want {
				t.Errorf("%.80s in pieces of %d: %+v, want %+v", in, piece, h.Usage(), want)
				break
			}
		}
	}
}

func TestHandleOfAnEventIsHidden(t *testing.T) {
	choice := `"choices":[{"index":0,"text":"\"kv_transfer_params\":{\"a\":1}","finish_reason":"stop"}]`
	for name, c := range map[string]struct{ event, want string }{
		"last":      {"data: {" + choice + `,"kv_transfer_params":` + ownHandle + "}\n\n", "data: {" + choice + `,"kv_transfer_params":null}` + "\n\n"},
		"spaces":    {"data: {" + choice + `, "kv_transfer_params" : ` + ownHandle + " }\r\n\r\n", "data: {" + choice + `, "kv_transfer_params" : null }` + "\r\n\r\n"},
		"escapes":   {`data: {"\u006bv_transfer_params":` + ownHandle + "," + choice + "}\n\n", `data: {"\u006bv_transfer_params":null,` + choice + "}\n\n"},
		"string":    {`data: {"kv_transfer_params":"x",` + choice + "}\n\n", `data: {"kv_transfer_params":null,` + choice + "}\n\n"},
		"two lines": {"data: {" + choice + ",\ndata: \"kv_transfer_params\":" + ownHandle + "}\n\n", "data: {" + choice + `, "kv_transfer_params":null}` + "\n\n"},
		"encodings first": {`data: {"ec_transfer_params":` + ownEncodings + "," + choice + `,"kv_transfer_params":` + ownHandle + "}\n\n",
			`data: {"ec_transfer_params":null,` + choice + `,"kv_transfer_params":null}` + "\n\n"},
		"encodings last, two lines": {`data: {"kv_transfer_params":` + ownHandle + ",\ndata: " + choice + `,"\u0065c_transfer_params":` + ownEncodings + "}\n\n",
			`data: {"kv_transfer_params":null, ` + choice + `,"\u0065c_transfer_params":null}` + "\n\n"},
		"error": {`data: {"error":{"code":500},"kv_transfer_params":` + ownHandle + "}\n\n", `data: {"error":{"code":500},"kv_transfer_params":null}` + "\n\n"},
	} {
		e := Classify([]byte(c.event))
		if !e.Handle() || e.Malformed {
			t.Errorf("%s: %+v", name, e)
			continue
		}
		got := e.HideTransfers([]byte(c.event))
		if string(got) != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if after := Classify(got); after.Transfers() || after.Kind != e.Kind || after.Finished != e.Finished {
			t.Errorf("%s: hidden, it is %+v, before %+v", name, after, e)
		}
	}
	for _, event := range []string{
		"data: {" + choice + `,"kv_transfer_params":null,"ec_transfer_params":null}` + "\n\n", "data: {" + choice + "}\n\n", "data: [DONE]\n\n",
		`data: {"choices":[{"kv_transfer_params":{"a":1},"ec_transfer_params":{"a":1}}]}` + "\n\n",
	} {
		if e := Classify([]byte(event)); e.Transfers() {
			t.Errorf("%s: %+v", event, e)
		}
	}
	if e := Classify([]byte("data: {" + choice + `,"ec_transfer_params":` + ownEncodings + "}\n\n")); e.Handle() || !e.Transfers() {
		t.Errorf("encodings alone are taken for blocks that decode keeps: %+v", e)
	}
	for _, name := range []string{"kv_transfer_params", "ec_transfer_params"} {
		twice := "data: {" + choice + `,"` + name + `":{"a":1},"` + name + `":{"b":1}}` + "\n\n"
		if e := Classify([]byte(twice)); !e.Malformed {
			t.Errorf("%s twice: %+v", name, e)
		}
	}
}

func BenchmarkHide(b *testing.B) {
	answer := []byte(fmt.Sprintf(`{"choices":[{"text":"%s"}],"kv_transfer_params":null}`, bytes.Repeat([]byte("0123456789abcdef "), 1<<14)))
	b.SetBytes(int64(len(answer)))
	for b.Loop() {
		var h Hider
		h.Hide(answer)
	}
}

// Nothing is allocated for an answer that says nothing of transfers.
func TestNothingToHideCostsNothing(t *testing.T) {
	const choices = `"choices":[{"index":0,"text":"a","finish_reason":"stop"}]`
	for _, tail := range []string{"}", `,"kv_transfer_params":null,"ec_transfer_params":null}`} {
		body, event := []byte("{"+choices+tail), []byte("data: {"+choices+tail+"\n\n")
		var c Completion
		out := make(Segments, 0, 8)
		if n := testing.AllocsPerRun(100, func() {
			var h Hider
			if c.Parse(body) != nil || Classify(event).Transfers() || h.Hide(body) != len(body) {
				t.Fatal("not the answer that is meant")
			}
			out = c.AppendClient(out[:0], -1)
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", body, n)
		}
	}
}
