package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"
)

// The check hostile: kv_transfer_params that an engine does not expect end it, hang it or have
// it answer with another prompt's text. Whatever a client sends, xpyd must let none through,
// nor anything else that the engines do not survive.

// outcome is how a hostile request must end.
type outcome uint8

const (
	outRefused  outcome = iota // by xpyd, with a 4xx of its own; no engine hears of it
	outIgnored                 // answered as if the field were not there
	outAnswered                // any well-formed answer of xpyd or an engine, and the engines live
)

// attack is one hostile request.
type attack struct {
	name   string
	want   outcome
	path   string
	body   []byte
	header []string
}

// besieged is the pair to which the requests are sent, through xpyd and two relays.
type besieged struct {
	t      *trial
	p, d   *engine
	rp, rd *relay
	x      *proxy
	clean  map[string][]byte // by path: the text of the answer to a request without the field
	logs   map[*engine]int64 // length of the logs at the start
}

func hostile(ctx context.Context, t *trial) error {
	engines, err := t.fleet.all(ctx, prefillEngine(1), decodeEngine(1))
	if err != nil {
		return err
	}
	b := &besieged{t: t, p: engines[0], d: engines[1], clean: map[string][]byte{}, logs: map[*engine]int64{}}
	ledger, err := openBooks(ctx, b.p, b.d)
	if err != nil {
		return err
	}
	for _, e := range engines {
		info, err := os.Stat(e.log)
		if err != nil {
			return fmt.Errorf("find the log of %s: %w", e.name, err)
		}
		b.logs[e] = info.Size()
	}
	if b.rp, err = newRelay(b.p); err != nil {
		return err
	}
	defer b.rp.close()
	if b.rd, err = newRelay(b.d); err != nil {
		return err
	}
	defer b.rd.close()
	if b.x, err = t.fleet.proxy(ctx, "--prefill", b.rp.url, "--decode", b.rd.url); err != nil {
		return err
	}
	if err := b.besiege(ctx); err != nil {
		return err
	}
	return b.aftermath(ctx, ledger)
}

// besiege sends the requests one after another, so that it finds an engine that one of them ends at
// once.
func (b *besieged) besiege(ctx context.Context) error {
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		got, err := b.send(ctx, "hostile-clean", attack{path: path, body: plea(path, nil)})
		if err != nil {
			return err
		}
		if b.clean[path] = textOf(got.body); got.status != 200 || len(b.clean[path]) == 0 {
			return fmt.Errorf("a harmless request to %s got status %d", path, got.status)
		}
	}
	stolen, err := b.useStolen(ctx)
	if err != nil {
		return err
	}
	all := attacks(stolen.handle)
	b.t.say("%d hostile requests", len(all))
	for i, a := range all {
		id := fmt.Sprintf("hostile-%03d", i)
		got, err := b.send(ctx, id, a)
		if err != nil {
			b.t.fail("%s: %v", a.name, err)
		} else {
			b.judge(id, a, got)
		}
		if a.want != outRefused || err != nil {
			if err := b.alive(ctx); err != nil {
				return fmt.Errorf("after %q: %w", a.name, err)
			}
		}
	}
	return nil
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	kind   string // content type
	body   []byte
}

func (b *besieged) send(ctx context.Context, id string, a attack) (reply, error) {
	v, err := call(ctx, b.x.url, a.path, id, a.body, a.header...)
	if err != nil {
		return reply{}, err
	}
	defer v.close()
	status, body, err := v.whole()
	if err != nil {
		return reply{}, fmt.Errorf("no whole answer: %w", err)
	}
	return reply{status, v.res.Header.Get("Content-Type"), body}, nil
}

func (b *besieged) judge(id string, a attack, got reply) {
	legs := len(b.rp.times(stepRequest, id)) + len(b.rd.times(stepRequest, id))
	switch a.want {
	case outRefused:
		b.t.judge(got.status >= 400 && got.status < 500 && wellFormed(got) && legs == 0,
			"%s: status %d, %d legs: %.200s", a.name, got.status, legs, got.body)
	case outIgnored:
		b.t.judge(got.status == 200 && bytes.Equal(textOf(got.body), b.clean[a.path]),
			"%s: status %d, another answer than without the field: %.200s", a.name, got.status, got.body)
	case outAnswered:
		b.t.judge(got.status < 500 && wellFormed(got), "%s: status %d: %.300s", a.name, got.status, got.body)
	}
}

// wellFormed reports whether the reply is JSON, with an error in it if the status is an error's, or
// a stream with an end.
func wellFormed(got reply) bool {
	if bytes.HasPrefix([]byte(got.kind), []byte("text/event-stream")) {
		return bytes.HasSuffix(bytes.TrimSpace(got.body), []byte("data: [DONE]"))
	}
	var answer struct {
		Error *struct{ Message, Type string } `json:"error"`
	}
	if json.Unmarshal(got.body, &answer) != nil {
		return false
	}
	return got.status == 200 || answer.Error != nil && answer.Error.Message != "" && answer.Error.Type != ""
}

// textOf returns what a whole answer says, on either API.
func textOf(body []byte) []byte {
	var answer struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
		}
	}
	if json.Unmarshal(body, &answer) != nil || len(answer.Choices) == 0 {
		return nil
	}
	return []byte(answer.Choices[0].Text + answer.Choices[0].Message.Content)
}

func (b *besieged) alive(ctx context.Context) error {
	for _, e := range []*engine{b.p, b.d} {
		if !e.running(ctx) {
			return fmt.Errorf("%s does not answer any more, see %s", e.name, e.log)
		}
	}
	return nil
}

// useStolen makes P hold blocks without the proxy. The handle then works and belongs to another
// request. useStolen judges that no client can use the handle, and that the blocks stay where they
// are.
func (b *besieged) useStolen(ctx context.Context) (pinned, error) {
	f := &freer{t: b.t, p: b.p, d: b.d}
	stolen, err := f.pin(ctx)
	if err != nil {
		return stolen, err
	}
	for _, a := range stolenAttacks(stolen) {
		got, err := b.send(ctx, "hostile-stolen", a)
		if err != nil {
			return stolen, err
		}
		b.judge("hostile-stolen", a, got)
	}
	b.t.judge(f.seesPinned(ctx) == nil, "the blocks of a handle that clients have shown are gone")
	_, err = f.post(ctx, b.d, stolen.reject())
	return stolen, err
}

// engineError matches a line of an engine's own processes, as opposed to its HTTP server's.
// alreadyFree matches one that P writes when blocks are given back twice. xpyd does so if D has
// refused a request and may or may not have told P.
var (
	engineError = regexp.MustCompile(`(?m)^\((EngineCore|Worker)[^)]*\) (ERROR|CRITICAL) .*$`)
	alreadyFree = regexp.MustCompile(`Potentially invalid KV blocks for unrecognized request`)
)

func (b *besieged) aftermath(ctx context.Context, ledger books) error {
	if err := ledger.close(ctx, b.t, time.Now(), leaveFree); err != nil {
		return err
	}
	for _, e := range []*engine{b.p, b.d} {
		b.t.judge(e.running(ctx), "%s is not healthy any more", e.name)
		text, err := logSince(e, b.logs[e])
		if err != nil {
			return err
		}
		for _, line := range engineError.FindAll(text, -1) {
			b.t.judge(alreadyFree.Match(line), "%s logged: %s", e.name, line)
		}
	}
	for path, want := range b.clean {
		got, err := b.send(ctx, "hostile-after", attack{path: path, body: plea(path, nil)})
		b.t.judge(err == nil && bytes.Equal(textOf(got.body), want), "a harmless request to %s is answered differently now: %v", path, err)
	}
	return xpydSettled(ctx, b.t, b.x)
}

func logSince(e *engine, offset int64) ([]byte, error) {
	file, err := os.Open(e.log)
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", e.name, err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.NewSectionReader(file, offset, 1<<30))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the log of %s: %w", e.name, err)
	}
	return text, nil
}
