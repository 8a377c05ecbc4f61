package versus

import (
	"bytes"
	"fmt"
	"strings"
)

// eventSize is the bytes of a content event, without the framing of its chunk.
const eventSize = 220

const (
	model       = "bench"
	stampMark   = `"content":"@`
	stampDigits = 19
)

// wholeText is what the clients look for in a whole answer.
var wholeText = []byte(" and the decode engine reads the blocks")

// Answers in the shape of vLLM 0.32's, as uvicorn frames them.
var (
	eventTail = []byte(`data: [DONE]` + "\n\n")

	okHealth  = response("text/plain", "")
	okVersion = response("application/json", `{"version":"0.32.0"}`)
	okModels  = response("application/json", `{"object":"list","data":[{"id":"`+model+`","object":"model","created":1795259073,"owned_by":"vllm","root":"/models/bench","parent":null,"max_model_len":4194304}]}`)
	okWhole   = response("application/json", `{"id":"cmpl-a892df640933f2a4","object":"text_completion","created":1795259066,"model":"`+model+`","choices":[{"index":0,"text":"`+string(wholeText)+`","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-89ad7bd0","usage":{"prompt_tokens":220,"total_tokens":226,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":null,"multimodal_tokens":null},"completion_tokens_details":null},"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`)
	notFound  = []byte("HTTP/1.1 404 Not Found\r\nserver: uvicorn\r\ncontent-length: 0\r\n\r\n")

	streamHead = append([]byte("HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 11:04:30 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"),
		chunked(chatEvent(`"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`))...)
	streamTail = bytes.Join([][]byte{
		chunked(chatEvent(`"delta":{"content":""},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null`)),
		chunked([]byte(`data: {"id":"chatcmpl-8d6bab86a8559f39","object":"chat.completion.chunk","created":1795259071,"model":"` + model + `","choices":[],"usage":{"prompt_tokens":220,"total_tokens":420,"completion_tokens":200,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n\n")),
		chunked(eventTail),
		[]byte("0\r\n\r\n"),
	}, nil)
)

func response(contentType, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 11:04:25 GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: %s\r\n\r\n%s", len(body), contentType, body)
}

func chatEvent(choice string) []byte {
	return []byte(`data: {"id":"chatcmpl-8d6bab86a8559f39","object":"chat.completion.chunk","created":1795259071,"model":"` + model + `","choices":[{"index":0,` + choice + `}]}` + "\n\n")
}

func chunked(data []byte) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(data), data) }

// contentEvent is the chunk of an event of eventSize bytes. Its stamp is all zeros at first,
// stampAt bytes into the event.
func contentEvent() (chunk []byte, stampAt int) {
	choice := `"delta":{` + stampMark + strings.Repeat("0", stampDigits) + `%s"},"logprobs":null,"finish_reason":null`
	bare := len(chatEvent(fmt.Sprintf(choice, "")))
	ev := chatEvent(fmt.Sprintf(choice, strings.Repeat("x", eventSize-bare)))
	return chunked(ev), bytes.Index(ev, []byte(stampMark)) + len(stampMark)
}

// putStamp writes ns in stampDigits digits.
func putStamp(dst []byte, ns int64) {
	for i := stampDigits - 1; i >= 0; i-- {
		dst[i] = byte('0' + ns%10)
		ns /= 10
	}
}

// readStamp is the reverse of putStamp. ok is false if a character is not a digit.
func readStamp(src []byte) (ns int64, ok bool) {
	if len(src) < stampDigits {
		return 0, false
	}
	for _, c := range src[:stampDigits] {
		if c < '0' || c > '9' {
			return 0, false
		}
		ns = ns*10 + int64(c-'0')
	}
	return ns, true
}

// blockTokens is vLLM's default block size, and tokenBytes what a prompt's token takes.
const (
	blockTokens = 16
	tokenBytes  = 4
)

// prefillAnswer returns the answer of a prefill engine to a request of that many bytes. Its handle
// lists the blocks of a prompt of that length.
func prefillAnswer(size int) []byte {
	tokens := max(1, size/tokenBytes)
	var ids strings.Builder
	for i := range (tokens + blockTokens - 1) / blockTokens {
		fmt.Fprintf(&ids, ",%d", 10_000+i)
	}
	return response("application/json", fmt.Sprintf(`{"id":"cmpl-77","object":"text_completion","created":1795259066,"model":%q,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-89ad7bd0","usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":null,"multimodal_tokens":null},"completion_tokens_details":null},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[%s]],"remote_engine_id":"fe5a6777-3989-49c9-b670-d37c354abcc3","remote_request_id":"cmpl-77-0-a9dfdf11","remote_host":"127.0.0.1","remote_port":5601,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":%d,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0},"ec_transfer_params":null,"metrics":null}`,
		model, tokens, tokens+1, ids.String()[1:], tokens))
}
