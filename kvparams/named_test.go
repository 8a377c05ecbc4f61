package kvparams

import (
	"bytes"
	"errors"
	"mime/multipart"
	"strings"
	"testing"
)

func TestModelOfAnyBody(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"a","input":["x"]}`:                 "a",
		` {"input":{"model":"no"},"model":"b\u0063"}`: "bc",
		`{"model":"a","model":"b"}`:                   "b",
		`{"model":null}`:                              "",
		`{"model":"a","model":null}`:                  "",
		`{"model":["a"]}`:                             "",
		`{"input":"x"}`:                               "",
		`["model","a"]`:                               "",
		`{"model":"a","kv_transfer_params":null,"ec_transfer_params":{ }}`: "a",
		`{"model":"a","input":{"kv_transfer_params":{"x":1}}}`:             "a",
	} {
		if got, urgent, err := Model([]byte(body)); string(got) != want || urgent || err != nil {
			t.Errorf("%s: %q, priority %v, %v, want %q", body, got, urgent, err, want)
		}
	}
	for _, body := range []string{`{"model":"a","priority":1}`, `{"\u0070riority":null,"model":"a"}`} {
		if got, urgent, err := Model([]byte(body)); string(got) != "a" || !urgent || err != nil {
			t.Errorf("%s: %q, priority %v, %v", body, got, urgent, err)
		}
	}
	for _, body := range []string{`{"model":"a","kv_transfer_params":{"x":1}}`, `{"kv_transfer\u005fparams":[],"model":"a"}`, `{"bootstrap_room":1}`} {
		_, _, err := Model([]byte(body))
		if e := new(Error); !errors.As(err, &e) || e.Code != CodeUnsupported || e.Param == "" {
			t.Errorf("%s: %v, want it refused with the parameter's name", body, err)
		}
	}
	for _, body := range []string{``, `{"model":"a"`, `{"model":"a"} x`, `["a"]x`, `{"x":NaN,"priority":1}`, "\xef\xbb\xbf{}", "{\x00}\x00"} {
		if _, _, err := Model([]byte(body)); err == nil {
			t.Errorf("%q is taken for JSON", body)
		}
	}
}

func TestOneModelOfAForm(t *testing.T) {
	for body, want := range map[string]bool{
		"": true,
		"Content-Disposition: form-data; name=\"model\"\r\n\r\nmodel":                   true,
		"form-data; name=\"models\"\r\n; filename=\"model\"\r\n a model":                false, // xpyd cannot tell
		"form-data; name=\"model\"\r\n\r\na\r\nform-data; name=\"model\"\r\n\r\nb":      false,
		"form-data; name=\"model\"\r\n\r\na\r\nform-data; NAME = model\r\n\r\nb":        false,
		"form-data; name=\"model\"\r\n\r\na\r\nform-data; name=\"file\"\r\n\r\nmodel x": true,
	} {
		if OneModel([]byte(body)) != want {
			t.Errorf("%q: want %v", body, want)
		}
	}
}

func TestModelOfAForm(t *testing.T) {
	form := func(fileFirst bool, model string) ([]byte, string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		file := func() {
			f, err := w.CreateFormFile("file", "a.wav")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write([]byte("RIFF\r\n--not the boundary\r\nname=\"model\"\r\n\r\nwrong")); err != nil {
				t.Fatal(err)
			}
		}
		if fileFirst {
			file()
		}
		if model != "" {
			if err := w.WriteField("model", model); err != nil {
				t.Fatal(err)
			}
		}
		if !fileFirst {
			file()
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes(), w.Boundary()
	}
	for _, fileFirst := range []bool{true, false} {
		for _, model := range []string{"whisper", ""} {
			if got := string(FormModel(form(fileFirst, model))); got != model {
				t.Errorf("file first %v: %q, want %q", fileFirst, got, model)
			}
		}
	}
	body, boundary := form(true, "whisper")
	if got := FormModel(body[:len(body)/2], boundary); got != nil {
		t.Errorf("half a form names %q", got)
	}
}

// A form must not bring KV parameters to an engine, however it is written.
func TestFormsBringNoHandles(t *testing.T) {
	const field = "--b\r\nContent-Disposition: form-data; name=\"vllm_xargs\"\r\n\r\n"
	const model = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n"
	for name, tc := range map[string]struct{ body, code, param string }{
		"none":       {model, "", ""},
		"harmless":   {field + `{"a":1,"b":["kv_transfer_params"]}` + "\r\n" + model, "", ""},
		"handle":     {model + field + `{"kv_transfer_params":""}`, CodeUnsupported, "vllm_xargs.kv_transfer_params"},
		"escaped":    {field + `{"a":1,"\u006bv_transfer_params":0}`, CodeUnsupported, "vllm_xargs.kv_transfer_params"},
		"encoder":    {field + `{"ec_transfer_params":"x"}`, CodeUnsupported, "vllm_xargs.ec_transfer_params"},
		"second one": {field + "{}\r\n" + field + `{"kv_transfer_params":1}`, CodeUnsupported, "vllm_xargs.kv_transfer_params"},
		"no JSON":    {field + `{"a":NaN}`, CodeInvalidType, "vllm_xargs"},
		"more JSON":  {field + `{}{"kv_transfer_params":1}`, CodeInvalidType, "vllm_xargs"},
		"no object":  {field + `"x"`, CodeInvalidType, "vllm_xargs"},
		"two names": {"--b\r\nContent-Disposition: form-data; name=\"model\"; name=\"vllm_xargs\"\r\n\r\n{}", CodeInvalidType,
			"vllm_xargs"},
		"bare line feeds": {"--b\r\nContent-Disposition: form-data; name=\"model\"\n\n; name=\"vllm_xargs\"\r\n\r\n{\"kv_transfer_params\":1}",
			CodeInvalidType, "vllm_xargs"},
		"encoded name": {"--b\r\nContent-Disposition: form-data; name*=utf-8''vllm%5Fxargs\r\n\r\n{\"kv_transfer_params\":1}", CodeInvalidType, "name"},
		// Go reads the name of the second form, and engines the first one.
		"two forms of a name": {"--b\r\nContent-Disposition: form-data; name=\"vllm_xargs\";\tname*=utf-8''x\r\n\r\n{\"kv_transfer_params\":\"\"}\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"y\";\tname*=utf-8''vllm%5Fxargs\r\n\r\n{}", CodeInvalidType, "name"},
		"another case":      {"--b\r\nContent-Disposition: form-data;NAME*=utf-8''vllm%5Fxargs\r\n\r\n{\"kv_transfer_params\":1}", CodeInvalidType, "name"},
		"in parts":          {"--b\r\nContent-Disposition: form-data;  name*0=vllm_;  name*1=xargs\r\n\r\n{\"kv_transfer_params\":1}", CodeInvalidType, "name"},
		"on a folded line":  {"--b\r\nContent-Disposition: form-data;\r\n name*=utf-8''vllm%5Fxargs\r\n\r\n{\"kv_transfer_params\":1}", CodeInvalidType, "name"},
		"a file's own name": {"--b\r\nContent-Disposition: form-data; name=file; filename*=utf-8''caf%C3%A9.wav\r\n\r\nRIFF; a name, *name*, rename*", "", ""},
		"another boundary":  {"--c\r\nContent-Disposition: form-data; name=\"vllm_xargs\"\r\n\r\n{}", CodeInvalidType, "vllm_xargs"},
	} {
		got := Error{}
		if err := CheckForm([]byte(tc.body+"\r\n--b--\r\n"), "b"); err != nil {
			got = *err.(*Error)
		}
		if got.Code != tc.code || got.Param != tc.param {
			t.Errorf("%s: %q %q, want %q %q", name, got.Code, got.Param, tc.code, tc.param)
		}
	}
}

// A form of very many parts is not read to its end. No engine takes it.
func TestFormsOfManyParts(t *testing.T) {
	form := func(n int) []byte {
		const field = "--b\r\nContent-Disposition: form-data; name="
		return []byte(strings.Repeat(field+"a\r\n\r\n\r\n", n) + field + "model\r\n\r\nwhisper\r\n" + field + "vllm_xargs\r\n\r\n{}\r\n--b--\r\n")
	}
	for n, want := range map[int]string{1998: "whisper", 2000: ""} {
		if got := string(FormModel(form(n), "b")); got != want {
			t.Errorf("%d parts before it: model %q, want %q", n, got, want)
		}
		if err := CheckForm(form(n), "b"); (err == nil) != (want != "") {
			t.Errorf("%d parts before it: %v", n, err)
		}
	}
}
