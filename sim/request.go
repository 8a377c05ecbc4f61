package sim

import (
	"encoding/json"
	"fmt"
	"strings"
)

// completionsDefault is max_tokens of a /v1/completions request without it.
const completionsDefault = 16

// request is a completion request that the request model accepted.
type request struct {
	model     string
	requestID string // the body's own, used if there is no X-Request-Id
	prompts   []prompt

	stream, includeUsage, continuousUsage bool

	maxTokens   int // 0 with limited false
	limited     bool
	minTokens   int
	n           int
	temperature *float64
	topP        *float64
	stop        []string
	stopIDs     []int // stop_token_ids
	echo        bool
	logprobs    int // top alternatives that are wanted; -1 means none
	ignoreEOS   bool
	tokenIDs    bool   // return_token_ids
	cacheSalt   string // prefixes are shared only with requests of the same salt

	tools      []tool
	toolChoice string // toolAuto, toolRequired, toolNamed, or "" if no tool is to be called
	toolName   string // the function that toolNamed wants
	// A response repeats what was offered and chosen.
	offered, chosen json.RawMessage

	previous string // previous_response_id

	kv map[string]json.RawMessage // kv_transfer_params; nil when absent or null

	ec    map[string]json.RawMessage // ec_transfer_params; likewise
	media []string                   // hashes of what has to be encoded

	textChat bool // a chat of text alone, which may bring the ids of its prompt
	reused   bool // the prompt is those ids, and the messages were not tokenised

	// SGLang's way to the other engine. Room 0 means none.
	bootstrapHost string
	bootstrapPort int
	room          uint64
}

// prompt is one text to complete.
type prompt struct {
	text   string
	tokens int
	ids    []int // as they came; nil if a text came
	said   []int // those at the end which an engine has said, see idsPrompt
}

func textPrompt(text string) prompt { return prompt{text: text, tokens: tokenCount(text)} }

// idsFrom returns the prompt's tokens from the first-th on.
func (p prompt) idsFrom(first int) []int {
	if p.ids != nil {
		return p.ids[first:]
	}
	return encode(p.text[min(first*bytesPerToken, len(p.text)):])
}

// answered returns p with its answer.
func (p prompt) answered(answer string) prompt {
	if p.ids != nil {
		return idsPrompt(append(p.ids[:len(p.ids):len(p.ids)], encode(answer)...))
	}
	return textPrompt(p.text + answer)
}

// parseRequest is the request model. What fails here never reaches the handler.
func parseRequest(body []byte, shape api) (*request, *apiError) {
	f := parseFields(body)
	if f.err != nil {
		return nil, f.err
	}
	r := &request{model: f.text("model", true), requestID: f.text("request_id", false)}
	r.cacheSalt = f.text("cache_salt", true)
	r.kv = f.object("kv_transfer_params")
	r.readMedia(f)
	r.readRoom(f)
	shape.read(r, f)
	return r, f.err
}

func (chatAPI) read(r *request, f *fields) {
	r.maxTokens, r.limited = f.integer("max_tokens", true, 0)
	if limit, given := f.integer("max_completion_tokens", true, 0); given {
		r.maxTokens, r.limited = limit, true
	}
	r.n, _ = f.integer("n", true, 1)
	r.readShared(f)
	r.readChat(f)
	checkStreamOptions(r, f)
}

func (completionsAPI) read(r *request, f *fields) {
	r.maxTokens, r.limited = f.integer("max_tokens", true, 0)
	f.integer("max_completion_tokens", true, 0) // of no meaning here, but it must be a number
	if !r.limited {
		r.maxTokens, r.limited = completionsDefault, true
	}
	r.n, _ = f.integer("n", false, 1)
	r.readShared(f)
	r.readCompletion(f)
	checkStreamOptions(r, f)
}

// readShared reads what the two classic APIs have in common.
func (r *request) readShared(f *fields) {
	r.minTokens, _ = f.integer("min_tokens", false, 0)
	r.readStream(f)
	r.temperature, r.topP = f.number("temperature"), f.number("top_p")
	r.stop = f.stops()
	if f.has("stop_token_ids", true, "", "") {
		r.stopIDs = f.integers("stop_token_ids")
	}
	r.ignoreEOS = f.boolean("ignore_eos", false)
	r.tokenIDs = f.boolean("return_token_ids", true)
}

func checkStreamOptions(r *request, f *fields) {
	if f.err == nil && !r.stream && f.members["stream_options"] != nil && string(f.members["stream_options"]) != "null" {
		f.err = badRequest("stream_options", "Stream options can only be defined when `stream=True`. (parameter=stream_options)")
	}
}

func (r *request) readStream(f *fields) {
	r.stream = f.boolean("stream", true)
	options := &fields{members: f.object("stream_options")}
	r.includeUsage = options.boolean("include_usage", true)
	r.continuousUsage = options.boolean("continuous_usage_stats", true) && r.includeUsage
	if options.err != nil && f.err == nil {
		f.err = options.err
		f.err.param = strings.Replace(f.err.param, "body.", "body.stream_options.", 1)
		f.err.message = strings.Replace(f.err.message, "'loc': 'body.", "'loc': 'body.stream_options.", 1)
	}
}

func (r *request) readChat(f *fields) {
	r.logprobs = -1
	top, _ := f.integer("top_logprobs", true, 0)
	if f.boolean("logprobs", true) {
		r.logprobs = top
	}
	if _, ok := f.members["messages"]; !ok && f.err == nil {
		f.missing("messages")
		return
	}
	if string(f.members["messages"]) == "null" {
		f.fail("list_type", "messages", "Input should be a valid list")
	}
	r.prompts = []prompt{textPrompt(ChatPrompt(readMessages(f, "messages")...))}
	r.textChat = textOnly(f.members["messages"])
	r.readTools(f)
}

// readsCache reports whether a cached prefix may replace computing. It may not if the request wants
// the log probabilities of the prompt itself.
func (r *request) readsCache() bool { return !r.echo || r.logprobs < 0 }

// readMessages reads chat messages whose content is a string, null or a list of parts. Parts other
// than text count as their type.
func readMessages(f *fields, name string) []Message {
	var messages []Message
	for _, raw := range f.list(name) {
		var m struct {
			Role    *string         `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(raw, &m) != nil || m.Role == nil {
			f.fail("dict_type", name, "Input should be a valid dictionary")
			return nil
		}
		messages = append(messages, Message{Role: *m.Role, Content: contentText(m.Content)})
	}
	return messages
}

func contentText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	for _, p := range parts {
		if strings.HasSuffix(p.Type, "text") { // the responses API has input_text and output_text
			text += p.Text
		} else {
			text += "<" + p.Type + ">"
		}
	}
	return text
}

func (r *request) readCompletion(f *fields) {
	r.logprobs, _ = f.integer("logprobs", true, -1)
	r.echo = f.boolean("echo", true)
	raw := f.members["prompt"]
	var text string
	var ids []int
	var texts []string
	var lists [][]int
	switch {
	case len(raw) == 0 || string(raw) == "null" || string(raw) == "[]":
	case json.Unmarshal(raw, &text) == nil:
		r.prompts = []prompt{textPrompt(text)}
	case json.Unmarshal(raw, &ids) == nil:
		r.prompts = []prompt{idsPrompt(ids)}
	case json.Unmarshal(raw, &texts) == nil:
		for _, t := range texts {
			r.prompts = append(r.prompts, textPrompt(t))
		}
	case json.Unmarshal(raw, &lists) == nil:
		for _, l := range lists {
			r.prompts = append(r.prompts, idsPrompt(l))
		}
	default:
		f.fail("string_type", "prompt", "Input should be a valid string")
	}
}

// verify is the handler's own check. What fails here is rejected after the connector could see the
// handle. The messages are the recorded ones where there is a recording.
func (r *request) verify(o Options) *apiError {
	if r.model != "" && r.model != o.Model {
		return unknownModel(r.model, o.Model)
	}
	if err := r.verifyTools(o); err != nil {
		return err
	}
	if r.previous != "" {
		return &apiError{status: 404, kind: "invalid_request_error", param: "response_id", message: fmt.Sprintf("Response with id '%s' not found.", r.previous)}
	}
	if err := r.reuseIDs(o); err != nil {
		return err
	}
	if len(r.prompts) == 0 {
		return badRequest("prompt", "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)")
	}
	if err := r.verifySampling(); err != nil {
		return err
	}
	if r.maxTokens > o.MaxModelLen {
		return badParameter("max_tokens", r.maxTokens, "max_tokens=%d cannot be greater than max_model_len=%d. "+
			"Please request fewer output tokens.", r.maxTokens, o.MaxModelLen)
	}
	for _, p := range r.prompts {
		if err := r.verifyLength(p.tokens, o.MaxModelLen); err != nil {
			return err
		}
	}
	return nil
}

func (r *request) verifySampling() *apiError {
	greedy := r.temperature != nil && *r.temperature == 0
	switch {
	case r.limited && r.maxTokens < 1:
		return badParameter("max_tokens", r.maxTokens, "max_tokens must be at least 1, got %d.", r.maxTokens)
	case r.limited && r.minTokens > r.maxTokens:
		return badRequest("", "min_tokens must be less than or equal to max_tokens=%d, got %d.", r.maxTokens, r.minTokens)
	case r.minTokens < 0:
		return badRequest("", "min_tokens must be greater than or equal to 0, got %d.", r.minTokens)
	case r.n < 1:
		return badRequest("", "n must be at least 1, got %d.", r.n)
	case greedy && r.n > 1:
		return badRequest("", "n must be 1 when using greedy sampling, got %d.", r.n)
	case r.temperature != nil && *r.temperature < 0:
		value := pyFloat(*r.temperature)
		return badParameter("temperature", value, "temperature must be non-negative, got %s.", value)
	case r.topP != nil && (*r.topP <= 0 || *r.topP > 1):
		value := pyFloat(*r.topP)
		return badParameter("top_p", value, "top_p must be in (0, 1], got %s.", value)
	}
	return nil
}

func (r *request) verifyLength(tokens, limit int) *apiError {
	if tokens > limit {
		return badParameter("input_tokens", limit+1, "This model's maximum context length is %d tokens. However, your prompt "+
			"contains at least %d input tokens, which exceeds this limit even without any output tokens. "+
			"Please reduce the length of the input prompt.", limit, limit+1)
	}
	if wanted := max(r.maxTokens, 1); wanted > limit-tokens {
		return badParameter("input_tokens", tokens, "This model's maximum context length is %d tokens. However, you requested "+
			"%d output tokens and your prompt contains at least %d input tokens, for a total of at least %d tokens. "+
			"Please reduce the length of the input prompt or the number of requested output tokens.",
			limit, wanted, tokens, tokens+wanted)
	}
	return nil
}
