package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// fields reads a JSON object as vLLM's request model does: leniently ("5" is an integer, 1 is
// true) and with its messages. The first failure stays.
type fields struct {
	members map[string]json.RawMessage
	err     *apiError
}

func parseFields(body []byte) *fields {
	f := &fields{}
	err := json.Unmarshal(body, &f.members)
	if err == nil && f.members != nil { // a body of null has no members
		return f
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		f.err = &apiError{
			status: 400, kind: "Bad Request", param: "body",
			message: "1 validation error:\n  {'type': 'model_attributes_type', 'loc': 'body', " +
				"'msg': 'Input should be a valid dictionary or object to extract fields from', 'input': " + pyValue(body) + "}",
		}
		return f
	}
	offset := min(max(syntax.Offset, 1), int64(len(body)))
	f.err = invalidJSON(offset, pyJSONError(body, offset))
	return f
}

// pyJSONError words a syntax error as Python's decoder does, nearly enough.
func pyJSONError(body []byte, offset int64) string {
	before := bytes.TrimRight(body[:max(offset-1, 0)], " \t\r\n")
	if int(offset) == len(body) {
		before = bytes.TrimRight(body, " \t\r\n")
	}
	switch {
	case bytes.HasSuffix(before, []byte(",")), bytes.HasSuffix(before, []byte("{")):
		return "Expecting property name enclosed in double quotes"
	case len(before) == 0, bytes.HasSuffix(before, []byte(":")), bytes.HasSuffix(before, []byte("[")):
		return "Expecting value"
	}
	return "Expecting ',' delimiter"
}

func (f *fields) fail(kind, name, message string) {
	if f.err == nil {
		f.err = modelError(kind, name, message, pyValue(f.members[name]))
	}
}

// has reports whether the member is there and not null. A null that the model does not allow is a
// failure.
func (f *fields) has(name string, nullable bool, kind, message string) bool {
	raw, ok := f.members[name]
	if !ok {
		return false
	}
	if string(raw) == "null" {
		if !nullable {
			f.fail(kind, name, message)
		}
		return false
	}
	return true
}

// missing is a failure for a required member that is absent.
func (f *fields) missing(name string) {
	if f.err == nil {
		f.err = modelError("missing", name, "Field required", fmt.Sprintf("'<dict of %d items>'", len(f.members)))
	}
}

// integers reads a required list of token ids.
func (f *fields) integers(name string) []int {
	if _, ok := f.members[name]; !ok {
		f.missing(name)
		return nil
	}
	var ids []int
	if json.Unmarshal(f.members[name], &ids) != nil {
		f.fail("list_type", name, "Input should be a valid list")
	}
	return ids
}

// integer returns the member or fallback. ok reports whether the member was there.
func (f *fields) integer(name string, nullable bool, fallback int) (value int, ok bool) {
	if !f.has(name, nullable, "int_type", "Input should be a valid integer") {
		return fallback, false
	}
	n, failure := laxInteger(f.members[name])
	if failure != "" {
		kind, message, _ := strings.Cut(failure, ": ")
		f.fail(kind, name, message)
		return fallback, false
	}
	return n, true
}

// laxInteger returns "kind: message" for a value that is not an integer.
func laxInteger(raw json.RawMessage) (int, string) {
	text, quoted := unquote(raw)
	if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && (quoted || isNumber(raw)) {
		return n, ""
	}
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case string(raw) == "true":
		return 1, ""
	case string(raw) == "false":
		return 0, ""
	case quoted:
		return 0, "int_parsing: Input should be a valid integer, unable to parse string as an integer"
	case !isNumber(raw) || err != nil:
		return 0, "int_type: Input should be a valid integer"
	case x != math.Trunc(x):
		return 0, "int_from_float: Input should be a valid integer, got a number with a fractional part"
	}
	return int(max(math.MinInt64/2, min(math.MaxInt64/2, x))), ""
}

func (f *fields) number(name string) *float64 {
	if !f.has(name, true, "", "") {
		return nil
	}
	text, quoted := unquote(f.members[name])
	if x, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil && (quoted || isNumber(f.members[name])) {
		return &x
	}
	if quoted {
		f.fail("float_parsing", name, "Input should be a valid number, unable to parse string as a number")
	} else {
		f.fail("float_type", name, "Input should be a valid number")
	}
	return nil
}

func (f *fields) boolean(name string, nullable bool) bool {
	if !f.has(name, nullable, "bool_type", "Input should be a valid boolean") {
		return false
	}
	raw := f.members[name]
	text, quoted := unquote(raw)
	switch strings.ToLower(text) {
	case "true", "1", "1.0":
		return true
	case "false", "0", "0.0":
		return false
	case "yes", "on", "t", "y":
		if quoted {
			return true
		}
	case "no", "off", "f", "n":
		if quoted {
			return false
		}
	}
	if quoted || isNumber(raw) {
		f.fail("bool_parsing", name, "Input should be a valid boolean, unable to interpret input")
	} else {
		f.fail("bool_type", name, "Input should be a valid boolean")
	}
	return false
}

func (f *fields) text(name string, nullable bool) string {
	if !f.has(name, nullable, "string_type", "Input should be a valid string") {
		return ""
	}
	var s string
	if json.Unmarshal(f.members[name], &s) != nil {
		f.fail("string_type", name, "Input should be a valid string")
	}
	return s
}

func (f *fields) object(name string) map[string]json.RawMessage {
	if !f.has(name, true, "", "") {
		return nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(f.members[name], &m) != nil {
		f.fail("dict_type", name, "Input should be a valid dictionary")
	}
	return m
}

func (f *fields) list(name string) []json.RawMessage {
	if !f.has(name, true, "", "") {
		return nil
	}
	var l []json.RawMessage
	if json.Unmarshal(f.members[name], &l) != nil {
		f.fail("list_type", name, "Input should be a valid list")
	}
	return l
}

// stops reads the stop member: a string, or at most four of them.
func (f *fields) stops() []string {
	if !f.has("stop", true, "", "") {
		return nil
	}
	var one string
	if json.Unmarshal(f.members["stop"], &one) == nil {
		return []string{one}
	}
	var many []string
	if json.Unmarshal(f.members["stop"], &many) != nil {
		f.fail("list_type", "stop", "Input should be a valid list")
	}
	if len(many) > 4 {
		f.fail("too_long", "stop", fmt.Sprintf("List should have at most 4 items after validation, not %d", len(many)))
	}
	return many
}

func unquote(raw json.RawMessage) (text string, quoted bool) {
	if len(raw) > 0 && raw[0] == '"' {
		quoted = json.Unmarshal(raw, &text) == nil
		return text, quoted
	}
	return string(raw), false
}

func isNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// pyValue shows a value as the error messages do: scalars as Python prints
// them, containers by their size.
func pyValue(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0, string(raw) == "null":
		return "None"
	case string(raw) == "true":
		return "True"
	case string(raw) == "false":
		return "False"
	case raw[0] == '{':
		var m map[string]json.RawMessage
		_ = json.Unmarshal(raw, &m) // raw was parsed before
		return fmt.Sprintf("'<dict of %d items>'", len(m))
	case raw[0] == '[':
		var l []json.RawMessage
		_ = json.Unmarshal(raw, &l) // raw was parsed before
		return fmt.Sprintf("'<list of %d items>'", len(l))
	case raw[0] == '"':
		text, _ := unquote(raw)
		return "'" + text + "'"
	case bytes.ContainsAny(raw, ".eE"):
		return "'" + string(raw) + "'"
	}
	return string(raw)
}
