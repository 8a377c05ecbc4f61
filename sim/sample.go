package sim

import (
	"bytes"
	"encoding/json"
	"strings"
)

// sample makes up a value for a JSON Schema in the simplest way. An object gets its required
// properties, in their order, and every string is three words of the script.
type sample struct {
	script script
	words  int // said so far
}

// schema is what sample reads of a schema.
type schema struct {
	Type       json.RawMessage // a name or a list of names
	Const      json.RawMessage
	Enum       []json.RawMessage
	Required   []string
	Properties map[string]json.RawMessage
	AnyOf      []json.RawMessage
	Minimum    json.Number
}

func (v *sample) appendValue(b []byte, raw json.RawMessage) []byte {
	var s schema
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return append(b, "{}"...) // any value will do, but arguments must be an object
	}
	switch {
	case s.Const != nil:
		return appendCompact(b, s.Const)
	case len(s.Enum) > 0:
		return appendCompact(b, s.Enum[0])
	case len(s.AnyOf) > 0:
		return v.appendValue(b, s.AnyOf[0])
	}
	switch s.typeName() {
	case "string":
		return v.appendText(b)
	case "integer", "number":
		if s.Minimum != "" {
			return append(b, s.Minimum...)
		}
		return append(b, '0')
	case "boolean":
		return append(b, "false"...)
	case "array":
		return append(b, "[]"...)
	case "null":
		return append(b, "null"...)
	}
	b = append(b, '{')
	for i, name := range s.Required {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendString(b, name), ": "...)
		b = v.appendValue(b, s.Properties[name])
	}
	return append(b, '}')
}

func (v *sample) appendText(b []byte) []byte {
	var text strings.Builder
	for range 3 {
		text.WriteString(v.script.token(v.words))
		v.words++
	}
	return appendString(b, strings.TrimSpace(text.String()))
}

// typeName returns the first type that s allows, or "".
func (s schema) typeName() string {
	var name string
	var names []string
	if json.Unmarshal(s.Type, &name) != nil && json.Unmarshal(s.Type, &names) == nil && len(names) > 0 {
		name = names[0]
	}
	return name
}

func appendCompact(b []byte, raw json.RawMessage) []byte {
	out := bytes.NewBuffer(b)
	_ = json.Compact(out, raw) // raw was parsed before
	return out.Bytes()
}
