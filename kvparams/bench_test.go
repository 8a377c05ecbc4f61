package kvparams

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// chatBody is a chat request of about size bytes whose text has escapes as chat texts have them.
func chatBody(size int) []byte {
	const head = `{"model":"meta-llama/Llama-3.1-8B-Instruct","messages":[{"role":"system","content":"You answer briefly."},` +
		`{"role":"user","content":"`
	const tail = `"}],"temperature":0.7,"top_p":0.95,"max_tokens":256,"stream":true,"stream_options":{"include_usage":true},` +
		`"seed":9007199254740993,"stop":["\n\n"]}`
	const line = `The user said \"move the blocks before the lease ends\" and the engine answered at once.\n`
	n := max(size-len(head)-len(tail), 0)
	return []byte(head + strings.Repeat(line, n/len(line)) + strings.Repeat("x", n%len(line)) + tail)
}

func BenchmarkScanAndBodies(b *testing.B) {
	h := Handle{Raw: []byte(`{"do_remote_prefill":true,"remote_block_ids":[[1,2,3]],"remote_port":5601}`)}
	for _, size := range []int{1 << 10, 40 << 10, 4 << 20} {
		body := chatBody(size)
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			var r Request
			var leg Leg
			prefill, decode := make(Segments, 0, 32), make(Segments, 0, 32)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Parse(Chat, body); err != nil || r.Bypass() != ReasonNone {
					b.Fatal(err, r.Bypass())
				}
				prefill = nixl{}.AppendPrefill(prefill[:0], &r, &leg)
				decode = nixl{}.AppendDecode(decode[:0], &r, h, &leg)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(body)), "ns/byte")
		})
	}
}

func BenchmarkScanTokenIDs(b *testing.B) {
	body := []byte(`{"model":"m","prompt":[` + strings.TrimSuffix(strings.Repeat("128000,", 10000), ",") + `]}`)
	var r Request
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Parse(Completions, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScanCyrillic(b *testing.B) {
	body := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("Блоки кэша освобождает аренда. ", 1000) + `"}]}`)
	var r Request
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Parse(Chat, body); err != nil {
			b.Fatal(err)
		}
	}
}

var contentEvent = []byte(`data: {"id":"chatcmpl-8d6bab86a8559f39","object":"chat.completion.chunk","created":1795259071,` +
	`"model":"tiny","choices":[{"index":0,"delta":{"content":"refilled"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n")

func BenchmarkClassify(b *testing.B) {
	b.SetBytes(int64(len(contentEvent)))
	b.ReportAllocs()
	for b.Loop() {
		if e := Classify(contentEvent); e.Kind != EventContent {
			b.Fatal(e)
		}
	}
}

func BenchmarkNextEvent(b *testing.B) {
	buf := bytes.Repeat(contentEvent, 16)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		for rest := buf; len(rest) > 0; {
			rest = rest[NextEventFrom(rest, 0):]
		}
	}
}

// BenchmarkHandle reads P's answer to a short prompt, and to one of a million tokens in blocks of 16.
func BenchmarkHandle(b *testing.B) {
	for _, blocks := range []int{4, 62500} {
		ids := strings.TrimSuffix(strings.Repeat("12345,", blocks), ",")
		body := []byte(`{"id":"cmpl-1","object":"text_completion","created":1795265055,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,` +
			`"finish_reason":"length"}],"usage":{"prompt_tokens":49,"total_tokens":50,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}},` +
			`"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[` + ids + `]],"remote_engine_id":"e",` +
			`"remote_request_id":"cmpl-1-0","remote_host":"10.0.0.1","remote_port":5601,"tp_size":1}}`)
		b.Run(fmt.Sprintf("%d", blocks), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if a, err := (nixl{}).ParseAnswer(body); err != nil || a.Handle.Blocks != blocks {
					b.Fatal(a, err)
				}
			}
		})
	}
}

// BenchmarkAnswer reads decode's whole answer and makes the client's of it, without transfers of decode's
// own and with both.
func BenchmarkAnswer(b *testing.B) {
	const head = `{"id":"chatcmpl-1","object":"chat.completion","created":1795265055,"model":"m","choices":[{"index":0,"message":{"role":"assistant",` +
		`"content":"refilled"},"finish_reason":"length"}],"usage":{"prompt_tokens":49,"total_tokens":50,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}`
	for name, tail := range map[string]string{
		"null": `,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`,
		"own":  `,"kv_transfer_params":` + ownHandle + `,"ec_transfer_params":` + ownEncodings + `,"metrics":null}`,
	} {
		body := []byte(head + tail)
		b.Run(name, func(b *testing.B) {
			var c Completion
			out := make(Segments, 0, 8)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Parse(body); err != nil {
					b.Fatal(err)
				}
				out = c.AppendClient(out[:0], 7)
			}
		})
	}
}
