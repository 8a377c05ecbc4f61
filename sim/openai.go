package sim

// openAI is what the APIs share whose events have choices.
type openAI struct{}

func (openAI) lead() string                              { return "data: " }
func (openAI) appendDone(b []byte, _ *generation) []byte { return append(b, "[DONE]"...) }
func (openAI) streamError(Options) string                { return "data: " + streamError }
func (openAI) appendError(b []byte, e *apiError) []byte  { return e.appendJSON(b) }
