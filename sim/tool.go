package sim

import "encoding/json"

// tool is a function that a chat request offers.
type tool struct {
	Name       string
	Parameters json.RawMessage // JSON Schema
}

// Values of request.toolChoice that are not the name of a function.
const (
	toolAuto     = "auto"
	toolRequired = "required"
	toolNamed    = "named" // request.toolName
)

const noSuchChatTool = "The tool specified in `tool_choice` does not match any of the specified `tools` (parameter=tool_choice)"

// readTools reads tools and tool_choice. Without tools it does not look at tool_choice.
func (r *request) readTools(f *fields) {
	for _, raw := range f.list("tools") {
		var offered struct{ Function tool }
		if json.Unmarshal(raw, &offered) != nil {
			f.fail("dict_type", "tools", "Input should be a valid dictionary")
			return
		}
		r.tools = append(r.tools, offered.Function)
	}
	if len(r.tools) == 0 {
		return
	}
	r.readToolChoice(f)
	if r.toolChoice != toolNamed || f.err != nil {
		return
	}
	for _, t := range r.tools {
		if t.Name == r.toolName {
			return
		}
	}
	f.err = badRequest("tool_choice", noSuchChatTool)
}

func (r *request) readToolChoice(f *fields) {
	raw, ok := f.members["tool_choice"]
	if !ok {
		r.toolChoice = toolAuto
		return
	}
	var choice *string
	if json.Unmarshal(raw, &choice) == nil {
		switch {
		case choice == nil || *choice == "none":
		case *choice == toolAuto, *choice == toolRequired:
			r.toolChoice = *choice
		default:
			f.err = badRequest("tool_choice", "Invalid value for `tool_choice`: %s! Only named tools, \"none\", \"auto\" or \"required\" "+
				"are supported. (parameter=tool_choice)", *choice)
		}
		return
	}
	var named struct{ Function struct{ Name string } }
	if json.Unmarshal(raw, &named) != nil {
		f.fail("dict_type", "tool_choice", "Input should be a valid dictionary")
	}
	r.toolChoice, r.toolName = toolNamed, named.Function.Name
}

func (r *request) verifyTools(o Options) *apiError {
	if r.toolChoice == "" || o.ToolCallParser != "" {
		return nil
	}
	if r.offered != nil { // the responses API asks for no parser, and answers with text
		r.toolChoice = ""
		return nil
	}
	switch r.toolChoice {
	case toolAuto:
		return badRequest("", `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`)
	case toolNamed:
		return badRequest("", `tool_choice=function "%s" requires --tool-call-parser to be set`, r.toolName)
	}
	return badRequest("", `tool_choice="%s" requires --tool-call-parser to be set`, r.toolChoice)
}

// toolFor returns the function that s calls, or nil if it answers with text. With "auto" a
// [[text:tool]] answer calls one.
func (r *request) toolFor(s script) *tool {
	if r.toolChoice == "" || r.toolChoice == toolAuto && s.style != "tool" {
		return nil
	}
	if r.toolChoice != toolNamed {
		return &r.tools[s.seed%uint64(len(r.tools))]
	}
	for i := range r.tools {
		if r.tools[i].Name == r.toolName {
			return &r.tools[i]
		}
	}
	panic("BUG: tool_choice names a function that was not offered")
}
