package kvparams

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func parsedMedia(t *testing.T, api API, body string) *Request {
	t.Helper()
	r := &Request{FindMedia: true}
	if err := r.Parse(api, []byte(body)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func joined(s Segments) string { return string(bytes.Join(s, nil)) }

func TestMediaIsFound(t *testing.T) {
	const image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}`
	for _, tc := range []struct {
		api      API
		messages string
		want     []string
	}{
		{Chat, `[{"role":"user","content":"look: {\"image_url\":1}"}]`, nil},
		{Chat, `[{"role":"user","content":[{"type":"text","text":"no"}]}]`, nil},
		{Chat, `[{"role":"user","content":[{"type":"text","text":"a"},` + image + `]},{"role":"assistant","content":null},{"content":[ ` + image + ` ]}]`, []string{image, image}},
		{Chat, `[{"content":[{"input_audio":{"data":"x","format":"wav"},"type":"input_audio"},{"image_url":"http://x/y","uuid":"u"}]}]`,
			[]string{`{"input_audio":{"data":"x","format":"wav"},"type":"input_audio"}`, `{"image_url":"http://x/y","uuid":"u"}`}},
		{Chat, `[{"c\u006fntent":[{"\u0069mage_url":"a"}]}]`, []string{`{"\u0069mage_url":"a"}`}},
		{Chat, `[{"content":[{"type":"image_embeds","image_embeds":"x"},{"image_url":null,"uuid":"cached"}]}]`, nil},
		{Chat, `[{"content":[{"audio_url":{"url":"a"}},{"video_url":{"url":"b"}}]}]`, []string{`{"audio_url":{"url":"a"}}`, `{"video_url":{"url":"b"}}`}},
		{Chat, `[{"role":"tool","tools":[{"image_url":"a"}]},["image_url"],3,{"content":[["image_url"],"image_url",{}]}]`, nil},
		{Messages, `[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"A"}},{"type":"text","text":"x"}]}]`,
			[]string{`{"type":"image","source":{"type":"base64","data":"A"}}`}},
		{Messages, `[{"role":"user","content":[{"image_url":"x","type":"text"}]}]`, nil},
		{Responses, `[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]`, nil},
	} {
		member := "messages"
		if tc.api == Responses {
			member = "input"
		}
		r := parsedMedia(t, tc.api, `{"`+member+`":`+tc.messages+`}`)
		if r.Media() != len(tc.want) {
			t.Errorf("%s %s: %d items, want %d", tc.api, tc.messages, r.Media(), len(tc.want))
			continue
		}
		for i, want := range tc.want {
			if got := joined(r.AppendEncode(nil, i, i+1)); !strings.HasSuffix(got, `"content":[`+want+`]}]}`) {
				t.Errorf("%s: item %d is sent as %s", tc.messages, i, got)
			}
		}
	}
}

func TestMediaIsFoundOnlyOnDemand(t *testing.T) {
	var r Request
	if err := r.Parse(Chat, []byte(`{"messages":[{"content":[{"image_url":"a"}]}]}`)); err != nil || r.Media() != 0 {
		t.Errorf("got %d items and %v, want none", r.Media(), err)
	}
}

// A body with more items than an encode stage takes is one without items, for it.
func TestTooMuchMediaIsLeft(t *testing.T) {
	items := func(n int) string { return strings.TrimSuffix(strings.Repeat(`{"image_url":"a"},`, n), ",") }
	if r := parsedMedia(t, Chat, `{"messages":[{"content":[`+items(maxMedia)+`]}]}`); r.Media() != maxMedia {
		t.Errorf("got %d items, want %d", r.Media(), maxMedia)
	}
	if r := parsedMedia(t, Chat, `{"messages":[{"content":[`+items(maxMedia+1)+`]}]}`); r.Media() != 0 {
		t.Errorf("got %d items, want 0", r.Media())
	}
}

// The search for items must not change what passes for JSON.
func TestMediaBodiesAreValidated(t *testing.T) {
	for _, messages := range []string{
		`[{"content":[{"image_url":}]}]`, `[{"content":[{"image_url":1,}]}]`, `[{"content":[{]}]`, `[{"content":[`, `[{"content":[{"image_url":"a"} {}]}]`,
		`[{"content" [1]}]`, `[{"content":[1]]`, `[{content:[1]}]`, "[{\"content\":[{\"image_url\":\"\x01\"}]}]",
	} {
		r := Request{FindMedia: true}
		if err := r.Parse(Chat, []byte(`{"messages":`+messages+`}`)); err == nil {
			t.Errorf("%s passed", messages)
		}
	}
}

func TestEncodeBody(t *testing.T) {
	r := parsedMedia(t, Chat, `{"model":"m\u0031","temperature":2,"priority":-3,"mm_processor_kwargs":{"a":1},"media_io_kwargs":{"b":2},"documents":[],`+
		`"messages":[{"role":"user","content":[{"type":"text","text":"secret"},{"image_url":"a"},{"image_url":"b"},{"image_url":"c"}]}],"stream":true,"max_tokens":9}`)
	got := joined(r.AppendEncode(nil, 1, 3))
	want := `{"max_tokens":1,"stream":false,"model":"m\u0031","priority":-3,"mm_processor_kwargs":{"a":1},"media_io_kwargs":{"b":2},` +
		`"messages":[{"role":"user","content":[{"image_url":"b"},{"image_url":"c"}]}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestEncodingsGoToOneLeg(t *testing.T) {
	r := parsedMedia(t, Chat, `{"messages":[{"content":[{"image_url":"a"}]}],"ec_transfer_params":null} `)
	plain, prefill := r.AppendPlain(nil), nixl{}.AppendPrefill(nil, r, &Leg{})
	for _, body := range []Segments{plain, prefill} {
		before := joined(body)
		got := joined(r.AppendEncodings(body, []byte(`"h":{"peer_host":"x"}`)))
		if want := strings.TrimSuffix(before, "} ") + `,"ec_transfer_params":{"h":{"peer_host":"x"}}} `; got != want || !json.Valid([]byte(got)) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := joined(r.AppendPlain(nil)); strings.Contains(got, "ec_transfer_params") {
		t.Errorf("another body of the request has the encodings too: %s", got)
	}
}

func TestEncodings(t *testing.T) {
	for _, tc := range []struct{ answer, want, fault string }{
		{`{"id":"x","ec_transfer_params":null}`, "", ""},
		{`{"choices":[]}`, "", ""},
		{`{"ec_transfer_params":{ }}`, "", ""},
		{`{"ec_transfer_params":{"h1":{"metadata":{"g":[1]},"peer_host":"good"},"h2":{}},"z":1}`, `"h1":{"metadata":{"g":[1]},"peer_host":"good"},"h2":{}`, ""},
		{`{"choices":[{"ec_transfer_params":{"h":{}}}]}`, "", ""},
		{`{"ec_transfer_params": {"h":{"a":"localhost","peer_host":"local\u0068ost","peer_port":1}, "i":{"peer_host":"good"},"j":{"peer_host":"localhost"} } }`,
			`"h":{"a":"localhost","peer_host":"10.0.0.9","peer_port":1}, "i":{"peer_host":"good"},"j":{"peer_host":"10.0.0.9"} `, ""},
		{`{"ec_transfer_params":{"h":{"peer_host":"evil"}}}`, "", "kv.allow_hosts"},
		{`{"ec_transfer_params":{"h":{"peer\u005fhost":"evil"}}}`, "", "kv.allow_hosts"},
		{`{"ec_transfer_params":{"h":{"peer_host":["good"]}}}`, "", "peer_host must be a string"},
		{`{"ec_transfer_params":{"h":7}}`, "", "must be an object"},
		{`{"ec_transfer_params":"h"}`, "", "must stand once and be an object"},
		{`{"ec_transfer_params":{},"ec_transfer_params":{"h":{}}}`, "", "must stand once and be an object"},
		{`{"ec_transfer_params":{"h":{}`, "", "not valid JSON"},
		{`{"ec_transfer_params":{"h":{}}} x`, "", "not valid JSON"},
		{`[]`, "", "not valid JSON"},
		{``, "", "not valid JSON"},
	} {
		got, err := Encodings([]byte(tc.answer), func(host []byte) (string, bool) {
			if string(host) == "localhost" {
				return "10.0.0.9", true
			}
			return "", string(host) == "good"
		})
		switch {
		case tc.fault == "" && (err != nil || string(got) != tc.want):
			t.Errorf("%s: got %q and %v, want %q", tc.answer, got, err, tc.want)
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%s: got %q and %v, want an error with %q", tc.answer, got, err, tc.fault)
		}
	}
}

// The bytes of an image are not text, whichever API it comes by, and whether encode legs exist or not.
func TestPromptTextHasNoMedia(t *testing.T) {
	data := strings.Repeat("A", 100_000)
	for _, tc := range []struct {
		api   API
		part  string
		media int
	}{
		{Chat, `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}`, 1},
		{Chat, `{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`, 1},
		{Chat, `{"type":"input_audio","input_audio":{"data":"` + data + `","format":"wav"}}`, 1},
		{Chat, `{"type":"image_embeds","image_embeds":"` + data + `"}`, 1},
		{Chat, `{"type":"text","text":"` + data + `"}`, 0},
		{Chat, `{"image_url":null,"text":"` + data + `"}`, 0},
		{Messages, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}`, 1},
		{Messages, `{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","source":{"data":"` + data + `"}}]}`, 1},
		{Messages, `{"type":"document","source":{"type":"base64","data":"` + data + `"}}`, 1},
		{Responses, `{"type":"input_image","image_url":"data:image/png;base64,` + data + `"}`, 1},
		{Responses, `{"type":"input_file","file_data":"` + data + `"}`, 1},
	} {
		member := "messages"
		if tc.api == Responses {
			member = "input"
		}
		text := `{"type":"text","text":"` + strings.Repeat("word ", 400) + `"}`
		var r Request
		if err := r.Parse(tc.api, []byte(`{"`+member+`":[{"role":"user","content":[`+text+`,`+tc.part+`]}]}`)); err != nil {
			t.Fatal(err)
		}
		size, media := r.PromptText()
		want, tokens := 2056, 514+1000*tc.media
		if tc.media == 0 {
			want, tokens = want+len(tc.part), tokens+len(tc.part)/4
		}
		n, exact := r.PromptTokens(4, 1000)
		if size < want-60 || size > want+60 || media != tc.media || n < tokens-15 || n > tokens+15 || exact {
			t.Errorf("%.60s: %d bytes of text and %d media, %d tokens; want about %d, %d and %d", tc.part, size, media, n, want, tc.media, tokens)
		}
	}
}

// An image has about as many blocks as text with its tokens, whatever its bytes, so that what a cache has of a prompt is
// known in tokens. A later turn has the blocks of the one before, and those of another image differ.
func TestBlocksOfAnImage(t *testing.T) {
	turn := func(image, more string) *Request {
		var r Request
		body := `{"messages":[{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("word ", 512) + `"},` +
			`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat(image, 500_000) + `"}}]}` + more + `]}`
		if err := r.Parse(Chat, []byte(body)); err != nil {
			t.Fatal(err)
		}
		return &r
	}
	first, next, other := turn("A", ""), turn("A", `,{"role":"user","content":"`+strings.Repeat("more ", 8000)+`"}`), turn("B", "")
	n := len(first.Blocks(blockBytes))
	if n < 10+mediaBlocks || n > 11+mediaBlocks {
		t.Errorf("%d blocks, want %d of the text and %d of the image", n, 10, mediaBlocks)
	}
	if m := len(next.Blocks(blockBytes)); m < n+155 || m > n+160 {
		t.Errorf("%d blocks with 40,000 bytes more, %d before", m, n)
	}
	same := func(r *Request) (n int) {
		for n < len(r.Blocks(blockBytes)) && n < len(first.Blocks(blockBytes)) && r.Blocks(blockBytes)[n] == first.Blocks(blockBytes)[n] {
			n++
		}
		return n
	}
	if got := same(next); got < n-1 { // the last one may hold the end of the list
		t.Errorf("the next turn has %d of %d blocks", got, n)
	}
	if got := same(other); got != 10 {
		t.Errorf("a chat with another image has %d blocks of the text, want 10", got)
	}
	if first.Conversation(blockBytes) != next.Conversation(blockBytes) || first.Conversation(blockBytes) == 0 || first.Conversation(blockBytes) == other.Conversation(blockBytes) {
		t.Errorf("conversations %x, %x and, with another image, %x", first.Conversation(blockBytes), next.Conversation(blockBytes), other.Conversation(blockBytes))
	}
}

// A part that is an image itself may hold a list that has images. It counts once.
func TestMediaWithinMedia(t *testing.T) {
	const inner = `[{"type":"image","source":{"data":"B"}},{"type":"image"}]`
	for _, part := range []string{
		`{"type":"image","source":{"data":"A"},"content":` + inner + `}`,
		`{"content":` + inner + `,"type":"document"}`,
	} {
		r := parsedMedia(t, Messages, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"},`+part+`,{"type":"image"}]}]}`)
		if size, media := r.PromptText(); size < 0 || media != 2 || size != r.PromptBytes()-len(part)-len(`{"type":"image"}`) {
			t.Errorf("%s: %d bytes of text and %d media, want 2", part, size, media)
		}
		if n := len(r.Blocks(blockBytes)); n != 2*mediaBlocks {
			t.Errorf("%s: %d blocks, want %d", part, n, 2*mediaBlocks)
		}
	}
}

// To an engine, an image is its uuid, with its content or without.
func TestMediaByUUID(t *testing.T) {
	const text = `[{"role":"user","content":[{"type":"text","text":"what is it?"},%s]}]`
	parse := func(image string) *Request {
		return parsedMedia(t, Chat, `{"messages":`+strings.ReplaceAll(text, "%s", image)+`}`)
	}
	whole := parse(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="},"uuid":"u"}`)
	for _, alone := range []string{`{"image_url":null,"uuid":"u"}`, `{"type":"image_url","image_url":{ },"uuid":"\u0075"}`, `{"uuid":"u","type":"image_url"}`} {
		r := parse(alone)
		ids := r.MediaIDs(nil, true)
		if len(ids) != 1 || len(whole.MediaIDs(nil, true)) != 0 || !slices.Equal(ids, whole.MediaIDs(nil, false)) {
			t.Errorf("%s has the ids %x, and the whole image %x", alone, ids, whole.MediaIDs(nil, false))
		}
		if n := len(r.Blocks(blockBytes)); n < mediaBlocks || !slices.Equal(r.Blocks(blockBytes)[:mediaBlocks], whole.Blocks(blockBytes)[:mediaBlocks]) || r.Conversation(blockBytes) != whole.Conversation(blockBytes) {
			t.Errorf("%s is another prompt than the whole image", alone)
		}
		if _, media := r.PromptText(); media != 1 || r.Media() != 0 {
			t.Errorf("%s: %d images in the prompt, %d for encode engines; want 1 and 0", alone, media, r.Media())
		}
	}
	for _, none := range []string{`{"type":"text","text":"a","uuid":"u"}`, `{"type":"image_url","image_url":null}`, `{"type":"image_url","uuid":7}`} {
		if r := parse(none); len(r.MediaIDs(nil, true)) != 0 {
			t.Errorf("%s has an id", none)
		}
	}
}
