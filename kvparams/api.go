package kvparams

// API says which of vLLM's request models a body is for.
type API uint8

const (
	Chat        API = iota // POST /v1/chat/completions
	Completions            // POST /v1/completions
	Messages               // POST /v1/messages, Anthropic's API
	Responses              // POST /v1/responses
	Generate               // POST /inference/v1/generate, token ids in and out
	APIs
)

// form is what differs between the request models.
type form struct {
	name, path string
	prompt     field    // holds the prompt
	known      fieldSet // what the engine reads at the top level; any other member passes as it is
	sampling   fieldSet // what it reads inside sampling_params
	limits     []field  // the output tokens; of several, the last that is given counts
	oneToken   []edit   // turns a request into its prefill leg
	unmarked   []edit   // likewise, into a body that does not say do_remote_decode
}

// openAIFields are the members of the two classic APIs. Neither knows all of them, but a client means
// the same by each.
const openAIFields = 1<<fieldModel | 1<<fieldMessages | 1<<fieldPrompt | 1<<fieldPromptEmbeds | 1<<fieldStream | 1<<fieldStreamOptions |
	1<<fieldMaxTokens | 1<<fieldMaxCompletionTokens | 1<<fieldMinTokens | 1<<fieldN | 1<<fieldBestOf | 1<<fieldBeamSearch |
	1<<fieldPromptLogprobs | 1<<fieldEcho | 1<<fieldLogprobs | 1<<fieldToolChoice | 1<<fieldPreviousResponse | 1<<fieldBackground |
	1<<fieldXargs | 1<<fieldSamplingParams | 1<<fieldReturnTokenIDs | 1<<fieldPriority | 1<<fieldCacheSalt

var forms = [APIs]form{
	Chat: {
		name: "chat", path: "/v1/chat/completions", prompt: fieldMessages, known: openAIFields,
		limits: []field{fieldMaxTokens, fieldMaxCompletionTokens}, oneToken: oneTokenChat, unmarked: oneTokenChat,
	},
	Completions: {
		name: "completions", path: "/v1/completions", prompt: fieldPrompt, known: openAIFields,
		limits: []field{fieldMaxTokens}, oneToken: oneTokenCompletions, unmarked: oneTokenCompletions, // vLLM does not know max_completion_tokens here
	},
	Messages: {
		name: "messages", path: "/v1/messages", prompt: fieldMessages,
		known: 1<<fieldModel | 1<<fieldMessages | 1<<fieldStream | 1<<fieldMaxTokens | 1<<fieldToolChoice | 1<<fieldXargs | 1<<fieldSamplingParams |
			1<<fieldThinking | 1<<fieldCacheSalt,
		limits: []field{fieldMaxTokens}, oneToken: oneTokenMessages, unmarked: oneTokenUnmarked,
	},
	Responses: {
		name: "responses", path: "/v1/responses", prompt: fieldInput,
		known: 1<<fieldModel | 1<<fieldInput | 1<<fieldStream | 1<<fieldMaxOutputTokens | 1<<fieldToolChoice | 1<<fieldTools |
			1<<fieldPreviousResponse | 1<<fieldBackground | 1<<fieldStore | 1<<fieldResponseMessages | 1<<fieldXargs | 1<<fieldSamplingParams |
			1<<fieldPriority | 1<<fieldIgnoreEOS | 1<<fieldStopTokenIDs | 1<<fieldCacheSalt,
		limits: []field{fieldMaxOutputTokens}, oneToken: oneTokenResponses, unmarked: oneTokenResponses,
	},
	Generate: {
		name: "generate", path: "/inference/v1/generate", prompt: fieldTokenIDs,
		known: 1<<fieldModel | 1<<fieldTokenIDs | 1<<fieldStream | 1<<fieldStreamOptions | 1<<fieldReturnTokenIDs | 1<<fieldXargs | 1<<fieldSamplingParams |
			1<<fieldPriority | 1<<fieldCacheSalt,
		sampling: 1<<fieldMaxTokens | 1<<fieldMinTokens | 1<<fieldN | 1<<fieldPromptLogprobs | 1<<fieldPromptLogprobIDs,
		limits:   []field{fieldMaxTokens}, oneToken: oneTokenGenerate, unmarked: oneTokenGenerate,
	},
}

// String is the name of the API in metrics and logs.
func (a API) String() string { return forms[a].name }

// Path is the path of the API. Engines and the proxy have the same one.
func (a API) Path() string { return forms[a].path }

func (r *Request) form() *form { return &forms[r.api] }

// fieldAt is the field that name is at the top level of a body, or fieldOther if its engine does not
// read it.
func (f *form) fieldAt(name []byte) field { return f.known.of(name) }

// samplingAt is fieldAt inside sampling_params.
func (f *form) samplingAt(name []byte) field { return f.sampling.of(name) }

// fieldSet has a bit for each field.
type fieldSet uint64

func (s fieldSet) has(f field) bool { return s&(1<<f) != 0 }

func (s fieldSet) of(name []byte) field {
	if f := fieldOf(name); s.has(f) {
		return f
	}
	return fieldOther
}
