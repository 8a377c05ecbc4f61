package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"xpyd/tools/sse"
)

// teller is a client that stays and reports what it got.
type teller struct {
	id     string
	ask    ask
	want   string       // the text of an engine that works alone
	events atomic.Int32 // of its stream so far

	// These fields are what it got. They may be read after it has ended.
	status int
	text   string
	finish string
	done   bool   // [DONE] came
	code   string // of an error answer or error event
	broke  bool   // the transfer broke off
	err    error  // of the connection, before any answer
}

// verdict says how a request ended.
type verdict uint8

const (
	verdictRight verdict = iota // whole, and the same as from the engine that works alone
	verdictError                // a well-formed error, and nothing wrong before it
	verdictWrong                // anything else
)

// tellAll sends the requests and returns when all are written; the group ends with them.
func tellAll(ctx context.Context, url string, tellers []*teller) *sync.WaitGroup {
	var group sync.WaitGroup
	for _, t := range tellers {
		v, err := call(ctx, url, t.ask.path(), t.id, t.ask.body(nil))
		if err != nil {
			t.err = err
			continue
		}
		group.Go(func() {
			defer v.close()
			t.listen(v)
		})
	}
	return &group
}

func (t *teller) listen(v *visit) {
	if t.status, t.err = v.head(); t.err != nil {
		return
	}
	if t.ask.stream && t.status == 200 {
		t.follow(v.res.Body)
		return
	}
	body, err := io.ReadAll(v.res.Body)
	t.broke = err != nil
	t.take(body)
}

// follow reads a stream to its end, however it ends.
func (t *teller) follow(stream io.Reader) {
	events := sse.NewReader(stream)
	data, err := events.Next()
	for ; err == nil; data, err = events.Next() {
		if sse.Done(data) {
			t.done = true
		} else {
			t.take(data)
			t.events.Add(1)
		}
	}
	t.broke = !errors.Is(err, io.EOF)
}

// take reads an answer or an event.
func (t *teller) take(data []byte) {
	var event struct {
		Error   *struct{ Message, Type, Code any }
		Choices []struct {
			Text           string
			Message, Delta struct{ Content string }
			Finish         string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(data, &event); err != nil {
		t.code = "no JSON"
		return
	}
	if e := event.Error; e != nil {
		if t.code = fmt.Sprint(e.Code); e.Message == nil || e.Type == nil {
			t.code = "no JSON"
		}
	}
	for _, c := range event.Choices {
		t.text += c.Text + c.Message.Content + c.Delta.Content
		t.finish += c.Finish
	}
}

func (t *teller) verdict() verdict {
	switch {
	case t.err != nil || t.code == "no JSON":
		return verdictWrong
	case t.status != 200 && t.code != "" && !t.broke:
		return verdictError
	case t.status != 200:
		return verdictWrong
	case t.code == "" && !t.broke && t.text == t.want && t.finish == "length" && t.done == t.ask.stream:
		return verdictRight
	case t.code != "" && t.broke && !t.done && strings.HasPrefix(t.want, strings.TrimRight(t.text, "\ufffd")):
		return verdictError // an end that no client takes for a good one
	}
	return verdictWrong
}

func (t *teller) String() string {
	return fmt.Sprintf("%s %s: status %d, error %q, broken off %v, [DONE] %v, finish %q, %v; text %.60q, the engine alone %.60q",
		t.id, t.ask.path(), t.status, t.code, t.broke, t.done, t.finish, t.err, t.text, t.want)
}
