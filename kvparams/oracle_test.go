package kvparams

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// The scanner is compared with this slow truth: encoding/json, with numbers kept as text and the
// last of duplicate keys.

func slow(t testing.TB, b []byte) map[string]any {
	t.Helper()
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", b, err)
	}
	return m
}

// strict reports whether b is JSON as this package takes it: valid, UTF-8 and not too deep.
func strict(b []byte) bool {
	return json.Valid(b) && utf8.Valid(b) && depthOf(b) <= maxDepth
}

func isObject(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == '{'
}

// depthOf is the nesting depth of valid JSON.
func depthOf(b []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}', c == ']':
			depth--
		}
	}
	return deepest
}

// doubledKeys reports whether any object of valid JSON has a key twice.
func doubledKeys(t testing.TB, b []byte) bool {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	type level struct {
		keys  map[string]bool // nil in an array
		value bool            // the next token of an object is a value
	}
	var stack []level
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		top := len(stack) - 1
		if key, ok := tok.(string); ok && top >= 0 && stack[top].keys != nil && !stack[top].value {
			if stack[top].keys[key] {
				return true
			}
			stack[top].keys[key], stack[top].value = true, true
			continue
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{keys: map[string]bool{}})
			continue
		case json.Delim('['):
			stack = append(stack, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
		}
		if top = len(stack) - 1; top >= 0 {
			stack[top].value = false
		}
	}
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func voidValue(v any) bool {
	m, ok := v.(map[string]any)
	return v == nil || ok && len(m) == 0
}

// withoutDoors is a copy of a request without the fields that clients may not send.
func withoutDoors(in map[string]any) map[string]any {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(k string, _ any) bool { return kvDoor([]byte(k)) })
	if x := object(out["vllm_xargs"]); x != nil {
		out["vllm_xargs"] = withoutAliases(x)
	}
	if sp := object(out["sampling_params"]); sp != nil {
		if x := object(sp["extra_args"]); x != nil {
			sp = maps.Clone(sp)
			sp["extra_args"] = withoutAliases(x)
			out["sampling_params"] = sp
		}
	}
	return out
}

func withoutAliases(in map[string]any) map[string]any {
	out := maps.Clone(in)
	delete(out, "kv_transfer_params")
	delete(out, "ec_transfer_params")
	return out
}

// oneTokenOracle is the result of the prefill edits of a request.
func oneTokenOracle(t testing.TB, api API, in map[string]any, kv []byte) map[string]any {
	out := withoutDoors(in)
	_, limited := in["max_completion_tokens"]
	if api == Chat || limited {
		out["max_completion_tokens"] = json.Number("1")
	}
	out["max_tokens"], out["min_tokens"] = json.Number("1"), json.Number("1")
	if _, ok := out["stream"]; ok {
		out["stream"] = false
	}
	delete(out, "stream_options")
	for _, name := range []string{"return_token_ids", "echo"} {
		if _, ok := in[name]; ok && (api == Completions || name != "echo") {
			out[name] = false
		}
	}
	out["kv_transfer_params"] = any(slow(t, kv))
	return out
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testdataAll(t testing.TB, pattern string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no testdata %s: %v", pattern, err)
	}
	all := map[string][]byte{}
	for _, p := range paths {
		all[filepath.Base(p)] = testdata(t, filepath.Base(p))
	}
	return all
}
