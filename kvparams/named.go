package kvparams

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
)

// Model returns the model that a JSON body of any route names, or nil if it names none or is no JSON
// object. Of several the last counts, as in the engine's own reader. It is valid as long as body is.
func Model(body []byte) (model []byte) {
	var s scanner
	s.reset(body)
	i := s.space(0)
	if s.byteAt(i) != '{' {
		return nil
	}
	for w := s.enter(i, 0); w.next(&s); {
		end := s.value(w.at, w.depth)
		if end >= 0 && s.byteAt(w.at) == '"' && string(text(body, w.key)) == "model" {
			model = text(body, span{w.at + 1, end - 1})
		}
		w.done(end)
	}
	if s.failed() {
		return nil // an engine refuses it
	}
	return model
}

// FormModel returns the value of the field model in a form, or nil if there is none. A file may stand
// before it.
func FormModel(body []byte, boundary string) []byte {
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := parts.NextRawPart()
		if err != nil {
			return nil // an engine refuses what is no form
		}
		if part.FormName() != "model" || part.FileName() != "" {
			continue
		}
		model, err := io.ReadAll(io.LimitReader(part, maxModel))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		return model
	}
}
