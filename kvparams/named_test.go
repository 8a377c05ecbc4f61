package kvparams

import (
	"bytes"
	"mime/multipart"
	"testing"
)

func TestModelOfAnyBody(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"a","input":["x"]}`:                 "a",
		` {"input":{"model":"no"},"model":"b\u0063"}`: "bc",
		`{"model":"a","model":"b"}`:                   "b",
		`{"model":null}`:                              "",
		`{"model":["a"]}`:                             "",
		`{"input":"x"}`:                               "",
		`["model","a"]`:                               "",
		`{"model":"a"`:                                "",
		``:                                            "",
	} {
		if got := string(Model([]byte(body))); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
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
