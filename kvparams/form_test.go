package kvparams

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
	"testing"
)

const disposition = "Content-Disposition: form-data; "

// aForm returns a form of parts with the given heads. The value of each is "v" and its number.
func aForm(heads ...string) string {
	var b strings.Builder
	for i, head := range heads {
		fmt.Fprintf(&b, "--b\r\n%s\r\n\r\nv%d\r\n", head, i)
	}
	return b.String() + "--b--\r\n"
}

// What clients write is read, in whatever order, and however they name a file.
func TestFormsOfClients(t *testing.T) {
	for client, heads := range map[string][2]string{
		"curl":            {disposition + `name="file"; filename="a.wav"` + "\r\nContent-Type: audio/x-wav", disposition + `name="model"`},
		"curl, a quote":   {disposition + `name="file"; filename="a%22b; name=x.wav"` + "\r\nContent-Type: application/octet-stream", disposition + `name="model"`},
		"httpx":           {disposition + `name="file"; filename="café.wav"` + "\r\nContent-Type: audio/x-wav", disposition + `name="model"`},
		"requests, old":   {disposition + `name="file"; filename*=utf-8''caf%C3%A9.wav`, disposition + `name="model"`},
		"aiohttp":         {"Content-Type: audio/x-wav\r\n" + disposition + `name="file"; filename="a.wav"; filename*=utf-8''a.wav`, "Content-Type: text/plain; charset=utf-8\r\n" + disposition + `name="model"`},
		"a browser":       {disposition + `name="file"; filename="C:\dir\a b.wav"` + "\r\nContent-Type: audio/wav", disposition + `name="model"`},
		".NET":            {disposition + `name=file; filename="a b.wav"; filename*=utf-8''a%20b.wav`, "Content-Type: text/plain; charset=utf-8\r\n" + disposition + `name=model`},
		"OkHttp":          {disposition + `name="file"; filename="a.wav"` + "\r\nContent-Type: audio/wav\r\nContent-Length: 2", disposition + `name="model"` + "\r\nContent-Length: 2"},
		"Apache":          {disposition + `name="file"; filename="a.wav"` + "\r\nContent-Transfer-Encoding: binary", disposition + `name="model"` + "\r\nContent-Transfer-Encoding: 8bit"},
		"Dart":            {strings.ToLower(disposition) + `name="file"; filename="a.wav"`, "content-transfer-encoding: binary\r\n" + strings.ToLower(disposition) + `name="model"`},
		"multipart of Go": {`Content-Disposition: form-data; name="file"; filename="a\\b.wav"`, `Content-Disposition: form-data; name="model"`},
	} {
		for i, want := range []string{"v1", "v0"} {
			body := aForm(heads[i], heads[1-i], disposition+`name="timestamp_granularities[]"`)
			if model, _, err := Form([]byte(body), "b"); string(model) != want || err != nil {
				t.Errorf("%s: %q, %v, want %q", client, model, err, want)
			}
		}
	}
	for body, want := range map[string]string{
		aForm(disposition + `name="file"; filename="a.wav"`): "",
		"--b--": "",
		"--b\r\n" + disposition + "name=\"model\"\r\n\r\n\r\n--b--":              "",
		strings.Replace(aForm(disposition+`name="model"`), "v0", "\r\n-\r\n", 1): "\r\n-\r\n",
	} {
		if model, _, err := Form([]byte(body), "b"); string(model) != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", body, model, err, want)
		}
	}
	if _, urgent, err := Form([]byte(aForm(disposition+`name="priority"`)), "b"); !urgent || err != nil {
		t.Errorf("a priority: %v, %v", urgent, err)
	}
}

// A form that two readers could take for different ones is refused, and the refusal names the part.
func TestFormsThatReadersDoNotAgreeOn(t *testing.T) {
	const model = disposition + `name="model"`
	for name, head := range map[string]string{
		"two names":              disposition + `name="a"; name="model"`,
		"an encoded name":        disposition + `name*=utf-8''model`,
		"both":                   disposition + `name="a"; name*=utf-8''model`,
		"a name in pieces":       disposition + `name*0="mo"; name*1="del"`,
		"another case":           disposition + `NAME="model"`,
		"angle brackets":         disposition + `name=<model>`,
		"form feed":              disposition + "name=\x0c\"model\"",
		"vertical tab":           disposition + "name=\x0b\"model\"",
		"group separator":        disposition + "name=\x1d\"model\"",
		"next line":              disposition + "name=\x85\"model\"",
		"no-break space":         disposition + "name=\xa0\"model\"",
		"tab":                    disposition + "name=\t\"model\"",
		"space before the value": disposition + `name= "model"`,
		"space behind the value": disposition + `name="model" `,
		"space within":           disposition + `name=" model"`,
		"not ASCII":              disposition + `name="modél"`,
		"UTF-7":                  disposition + "name=+AG0-odel\x00",
		"bare line feed":         disposition + "\nname=\"model\"",
		"bare carriage return":   disposition + "name=\"model\"\rx",
		"folded":                 "Content-Disposition: form-data;\r\n name=\"model\"",
		"twice":                  model + "\r\n" + disposition + `name="a"`,
		"spelt with a space":     model + "\r\nContent-Disposition : form-data; name=\"a\"",
		"spelt with a letter":    model + "\r\nContent-D\u0130sposition: form-data; name=\"a\"",
		"no colon":               model + "\r\nContent-Type",
		"another field":          model + "\r\nX-Name: a",
		"no disposition":         "Content-Type: text/plain",
		"no name":                "Content-Disposition: form-data",
		"no semicolon":           `Content-Disposition: form-data name="model"`,
		"no space":               `Content-Disposition: form-dataname="model"`,
		"none before a file":     model + ` filename="a"`,
		"an empty name":          disposition + `name=""`,
		"an open quote":          disposition + `name="model`,
		"an escaped quote":       disposition + `name="a"; filename="\"; name="model"`,
		"another parameter":      disposition + `name="model"; x=y`,
		"a semicolon":            disposition + `name="model";`,
		"name behind filename":   disposition + `filename="a"; name="model"`,
		"an attachment":          `Content-Disposition: attachment; name="model"`,
		"base64":                 model + "\r\nContent-Transfer-Encoding: base64",
		"another length":         model + "\r\nContent-Length: 1",
		"a very long head":       model + "\r\nContent-Type: " + strings.Repeat("a", maxPartHead),
	} {
		body := aForm(disposition+`name="first"`, head)
		if _, _, err := Form([]byte(body), "b"); !isFormError(err, "part 2: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole := aForm(model)
	for name, body := range map[string]string{
		"empty":                "",
		"a preamble":           "x\r\n" + whole,
		"a line end before it": "\r\n" + whole,
		"another boundary":     strings.ReplaceAll(whole, "--b", "--c"),
		"a longer boundary":    strings.ReplaceAll(whole, "--b", "--bb"),
		"half of it":           whole[:len(whole)/2],
		"no end":               strings.TrimSuffix(whole, "--\r\n"),
		"an epilogue":          whole + "x",
		"bare line feeds":      strings.ReplaceAll(whole, "\r\n", "\n"),
		"padded boundary":      strings.Replace(whole, "--b\r\n", "--b \r\n", 1),
		"no value":             strings.Replace(whole, "v0", "--b\r\n--", 1),
		"boundary in a value":  strings.Replace(whole, "v0", "v\r\n--bx", 1),
		"no empty line":        strings.Replace(whole, "\r\n\r\n", "\r\n", 1),
	} {
		if _, _, err := Form([]byte(body), "b"); !isFormError(err, "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func isFormError(err error, part string) bool {
	e := new(Error)
	return errors.As(err, &e) && e.Code == CodeInvalidForm && strings.Contains(e.Message, part)
}

// A form must not bring KV parameters to an engine, and names one model.
func TestFieldsOfForms(t *testing.T) {
	field := func(name, value string) string {
		return "--b\r\n" + disposition + `name="` + name + "\"\r\n\r\n" + value + "\r\n"
	}
	model := field("model", "whisper")
	for name, tc := range map[string]struct{ body, code, param string }{
		"none":            {model, "", ""},
		"harmless":        {field(xargs, `{"a":1,"b":["kv_transfer_params"]}`) + model, "", ""},
		"handle":          {model + field(xargs, `{"kv_transfer_params":""}`), CodeUnsupported, "vllm_xargs.kv_transfer_params"},
		"escaped":         {field(xargs, `{"a":1,"\u006bv_transfer_params":0}`), CodeUnsupported, "vllm_xargs.kv_transfer_params"},
		"encoder":         {field(xargs, `{"ec_transfer_params":"x"}`), CodeUnsupported, "vllm_xargs.ec_transfer_params"},
		"second one":      {field(xargs, "{}") + field(xargs, `{"kv_transfer_params":1}`), CodeUnsupported, "vllm_xargs.kv_transfer_params"},
		"no JSON":         {field(xargs, `{"a":NaN}`), CodeInvalidType, xargs},
		"more JSON":       {field(xargs, `{}{"kv_transfer_params":1}`), CodeInvalidType, xargs},
		"no object":       {field(xargs, `"x"`), CodeInvalidType, xargs},
		"a file":          {field(xargs+`"; filename="a`, `{}`), CodeInvalidType, xargs},
		"too much":        {field(xargs, `{}`+strings.Repeat(" ", maxXargs)), CodeInvalidType, xargs},
		"a field itself":  {field("kv_transfer_params", ""), CodeUnsupported, "kv_transfer_params"},
		"a second model":  {model + model, CodeDuplicate, "model"},
		"none, then one":  {field("model", "") + model, CodeDuplicate, "model"},
		"model of a file": {field(`model"; filename*="utf-8''a`, "whisper"), CodeInvalidType, "model"},
		"a long model":    {field("model", strings.Repeat("m", maxModel+1)), CodeInvalidType, "model"},
		"latin-1":         {field("model", "caf\xe9"), CodeInvalidType, "model"},
	} {
		got := Error{}
		if _, _, err := Form([]byte(tc.body+"--b--\r\n"), "b"); err != nil {
			got = *err.(*Error)
		}
		if got.Code != tc.code || got.Param != tc.param {
			t.Errorf("%s: %q %q, want %q %q", name, got.Code, got.Param, tc.code, tc.param)
		}
	}
}

// A form of very many parts is not read to its end. No engine takes it.
func TestFormsOfManyParts(t *testing.T) {
	for n, taken := range map[int]bool{maxParts: true, maxParts + 1: false} {
		body := strings.Repeat("--b\r\n"+disposition+"name=a\r\n\r\n\r\n", n) + "--b--\r\n"
		if _, _, err := Form([]byte(body), "b"); (err == nil) != taken {
			t.Errorf("%d parts: %v", n, err)
		}
	}
}

// FuzzForm compares the parts that Form reads with those of Go's reader, which is laxer.
func FuzzForm(f *testing.F) {
	f.Add([]byte(aForm(disposition+`name="file"; filename="a.wav"`, disposition+`name=model`)))
	f.Add([]byte(aForm(disposition+`name="a"; filename*=utf-8''b`+"\r\nContent-Length: 2", "content-type: x\r\n"+disposition+`name="model"`)))
	f.Add([]byte("--b\r\n" + disposition + "name=\"model\"\r\n\r\n\r\n--b\r\n-\r\n--b--"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, _, err := Form(body, "b"); err != nil {
			return
		}
		ours, theirs := parts{rest: body, delimiter: []byte("\r\n--b")}, multipart.NewReader(bytes.NewReader(body), "b")
		ours.rest, _ = ours.open()
		for p := (part{}); ; {
			more, err := ours.next(&p)
			if err != nil {
				t.Fatal("taken, and then refused", err)
			}
			other, err := theirs.NextRawPart()
			if !more {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("another part: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("no part %q: %v", p.name, err)
			}
			value, err := io.ReadAll(other)
			// Go drops the whole Content-Disposition where it cannot decode the name of a file.
			if other.FormName() != string(p.name) && other.FormName() != "" || !bytes.Equal(value, p.value) || err != nil {
				t.Fatalf("%q %q, and Go reads %q %q, %v", p.name, p.value, other.FormName(), value, err)
			}
		}
	})
}
