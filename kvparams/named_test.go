package kvparams

import (
	"errors"
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
