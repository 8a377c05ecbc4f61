package fault

import (
	"encoding/json"
	"testing"
)

// An error names a field as the client has written it, whatever its letters.
func TestErrorsKeepTheLettersOfFields(t *testing.T) {
	for name, want := range map[string]string{
		"größe": "größe", "模型": "模型", "a\"b\\c": "a\"b\\c", "tab\there\x7f": "tab\there\x7f", "broken\xff": "broken\ufffd",
	} {
		var body struct {
			Error struct{ Message, Param string }
		}
		text := (&Error{Message: "field " + name + " …", Param: name}).AppendBody(nil)
		if err := json.Unmarshal(text, &body); err != nil || body.Error.Param != want || body.Error.Message != "field "+want+" …" {
			t.Errorf("%v: %s has %q, want %q", err, text, body.Error.Param, want)
		}
	}
}
