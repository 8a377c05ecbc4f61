package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// In the check encode, an encode engine encodes images and the prefill engine loads what that has made
// (ECExampleConnector). The answers are those of the decode engine when it is asked alone and encodes by
// itself. The engines have a model of their own, which reads images.

const (
	messagesPath = "/v1/messages"
	encodeWait   = 10 * time.Second // for counters
)

// sights are the engines of that check.
type sights struct {
	t                       *trial
	encode, prefill, decode *engine
	xpyd                    *proxy
	folder                  string // of the encodings
	sent                    int
}

func encode(ctx context.Context, t *trial) error {
	for _, s := range []spec{plainEngine(), prefillEngine(1), prefillEngine(2), decodeEngine(1), decodeEngine(2)} {
		if err := newEngine(t.fleet, s).stop(ctx); err != nil { // no more than four may run
			return err
		}
	}
	s := &sights{t: t, folder: filepath.Join(t.fleet.runDir, fmt.Sprint("ec-", t.fleet.opts.ports))}
	if err := errors.Join(os.RemoveAll(s.folder), os.MkdirAll(s.folder, 0o755)); err != nil {
		return fmt.Errorf("make a folder for encodings: %w", err)
	}
	t.say("starting engines")
	engines, err := t.fleet.all(ctx, s.spec("ve", "plain", 5, "ec_producer"), s.spec("vp", "prefill", 6, "ec_consumer"), s.spec("vd", "decode", 7, ""))
	if err != nil {
		return err
	}
	defer func() { // they would be too many beside those of other checks
		for _, e := range engines {
			if err := e.stop(context.WithoutCancel(ctx)); err != nil {
				t.fail("%v", err)
			}
		}
	}()
	s.encode, s.prefill, s.decode = engines[0], engines[1], engines[2]
	s.xpyd, err = t.fleet.proxy(ctx, "--encode", s.encode.url, "--prefill", s.prefill.url, "--decode", s.decode.url)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.asked, s.exact, s.swapped, s.killed} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// spec is an engine with the model that reads images. Requests are found in the log of the prefill engine by
// their encodings. None has a prefix cache, because the decode engine must neither pull less than a prompt nor
// answer alone out of what it has pulled.
func (s *sights) spec(name, role string, port int, encodes string) spec {
	args := append(baseArgs(), "--no-enable-prefix-caching")
	if encodes != "" {
		args = append(args, "--ec-transfer-config", fmt.Sprintf(
			`{"ec_connector":"ECExampleConnector","ec_role":%q,"ec_connector_extra_config":{"shared_storage_path":%q}}`, encodes, s.folder))
	}
	return spec{name: name, role: role, port: port, args: args, images: true}
}

// asked: xpyd's own commands find nothing wrong.
func (s *sights) asked(ctx context.Context) error {
	pools := []string{"--encode", s.encode.url, "--prefill", s.prefill.url, "--decode", s.decode.url}
	if out, err := s.t.fleet.command(ctx, append([]string{"check", "--listen", "127.0.0.1:0", "--probe"}, pools...)...); err != nil || strings.Contains(out, "encode "+s.encode.url) {
		s.t.fail("xpyd check --probe: %v\n%s", err, out)
	} else {
		s.t.pass()
	}
	rows, err := verifyRows(ctx, s.t.fleet.opts.xpyd, append([]string{"verify", "--json", "--url", s.xpyd.url, "--skip",
		"path,request id,prefill,pull,completions,completions streamed,chat,chat streamed,one token,n=2,logprobs,tools,EOS first,client leaves,rejected,lease"}, pools...)...)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.State != "ok" {
			s.t.fail("xpyd verify: %s %s: %s", r.Check, r.State, r.Detail)
			continue
		}
		s.t.say("xpyd verify: %s %s: %s", r.Check, r.State, r.Detail)
		s.t.pass()
	}
	if !slices.ContainsFunc(rows, func(r verified) bool { return r.Check == "encode" }) {
		s.t.fail("xpyd verify has no row encode: %v", rows)
	}
	return nil
}

// exact compares answers about images. Each image is encoded once, by the encode engine, and loaded by the
// prefill engine.
func (s *sights) exact(ctx context.Context) error {
	before, err := s.figures(ctx)
	if err != nil {
		return err
	}
	old := s.encodings()
	one, two, three := picture(), picture(), picture()
	if a, b := s.ask(ctx, s.decode, chatPath, false, one), s.ask(ctx, s.decode, chatPath, false, two); s.same(a, b) {
		return fmt.Errorf("two images have the same answer, so a comparison proves nothing: %.300v", a.content)
	}
	items, prompts := 0, 0
	for _, c := range []struct {
		path   string
		stream bool
		parts  []string
	}{
		{chatPath, false, []string{one}}, {chatPath, true, []string{two}}, {messagesPath, false, []string{three}},
		{chatPath, false, []string{picture(), picture(), picture()}}, {chatPath, true, []string{picture(), picture()}}, {chatPath, false, nil},
	} {
		want := s.ask(ctx, s.decode, c.path, c.stream, c.parts...)
		got := s.ask(ctx, nil, c.path, c.stream, c.parts...)
		what := fmt.Sprintf("%s with %d images, streamed: %v", c.path, len(c.parts), c.stream)
		s.equal(what, want, got)
		items += len(c.parts)
		prompts++
	}
	after := before
	_ = poll(ctx, encodeWait, func() bool { // a difference is judged below
		after, err = s.figures(ctx)
		return err != nil || after.since(before) == (seen{items, items, 0, prompts})
	})
	if err != nil {
		return err
	}
	if moved := after.since(before); moved != (seen{items, items, 0, prompts}) {
		s.t.fail("of %d images: %+v, want as many requests on %s, as many items encoded, none left, and %d transfers", items, moved, s.encode.name, prompts)
	} else {
		s.t.say("%d images, %d requests on %s, %d prompts pulled by %s", items, moved.requests, s.encode.name, moved.transfers, s.decode.name)
		s.t.pass()
	}
	return s.loaded(old, items)
}

// loaded: the folder has a new encoding for each image, and the prefill engine says that it has loaded each.
func (s *sights) loaded(old []string, items int) error {
	log, err := os.ReadFile(s.prefill.log)
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", s.prefill.name, err)
	}
	fresh := without(s.encodings(), old)
	if len(fresh) != items {
		s.t.fail("%d new encodings in the folder, want %d", len(fresh), items)
	}
	for _, hash := range fresh {
		if !bytes.Contains(log, []byte("load encoder cache for hash "+hash)) {
			s.t.fail("%s has not loaded the encoding %s, so it has encoded the image itself", s.prefill.name, hash)
			continue
		}
		s.t.pass()
	}
	return nil
}

// swapped exchanges the encodings of two images. The answer about one must become that about the other, since
// the prefill engine sees only what the encode engine has left.
func (s *sights) swapped(ctx context.Context) error {
	images, hashes := [2]string{picture(), picture()}, [2]string{}
	var own [2]answer
	for i, image := range images {
		own[i] = s.ask(ctx, s.decode, chatPath, false, image)
		old := s.encodings()
		if a := s.ask(ctx, s.encode, chatPath, false, image); a.status != 200 {
			return fmt.Errorf("%s answers %d", s.encode.name, a.status)
		}
		fresh := without(s.encodings(), old)
		if len(fresh) != 1 {
			return fmt.Errorf("one image left %d encodings", len(fresh))
		}
		hashes[i] = filepath.Join(s.folder, fresh[0])
	}
	aside := filepath.Join(s.folder, "aside")
	for _, move := range [][2]string{{hashes[0], aside}, {hashes[1], hashes[0]}, {aside, hashes[1]}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			return fmt.Errorf("exchange encodings: %w", err)
		}
	}
	got := s.ask(ctx, nil, chatPath, false, images[0])
	if s.same(got, own[0]) {
		s.t.fail("the answer is that of the image, and not that of its encoding: %s encodes by itself", s.prefill.name)
		return nil
	}
	s.equal("with the encoding of another image", own[1], got)
	return nil
}

// killed: without its encode engine, a request gets its right answer all the same.
func (s *sights) killed(ctx context.Context) error {
	before, err := s.figures(ctx)
	if err != nil {
		return err
	}
	old := s.encodings()
	if err := s.encode.signal(syscall.SIGKILL); err != nil {
		return err
	}
	for _, stream := range []bool{false, true} {
		image := picture()
		want := s.ask(ctx, s.decode, chatPath, stream, image)
		s.equal("without encode engine", want, s.ask(ctx, nil, chatPath, stream, image))
	}
	left, err := s.xpyd.metric("xpyd_encode_items_total", `result="left"`)
	if err != nil {
		return err
	}
	if fresh := without(s.encodings(), old); int(left)-before.left != 2 || len(fresh) > 0 {
		s.t.fail("%v items are counted as left, and %d encodings are new, want 2 and none", int(left)-before.left, len(fresh))
	} else {
		s.t.pass()
	}
	return nil
}

// seen is what the engines and xpyd count.
type seen struct{ requests, encoded, left, transfers int }

func (s seen) since(b seen) seen {
	return seen{s.requests - b.requests, s.encoded - b.encoded, s.left - b.left, s.transfers - b.transfers}
}

func (s *sights) figures(ctx context.Context) (now seen, err error) {
	requests, err1 := s.encode.metric(ctx, "vllm:request_success_total")
	transfers, err2 := s.decode.metric(ctx, "vllm:nixl_xfer_time_seconds_count")
	encoded, err3 := s.xpyd.metric("xpyd_encode_items_total", `result="encoded"`)
	left, err4 := s.xpyd.metric("xpyd_encode_items_total", `result="left"`)
	return seen{int(requests), int(encoded), int(left), int(transfers)}, errors.Join(err1, err2, err3, err4)
}

// ask sends a request about images to an engine, or through xpyd if that is nil. A failure to get an answer is
// one with status 0.
func (s *sights) ask(ctx context.Context, e *engine, path string, stream bool, images ...string) answer {
	base := s.xpyd.url
	if e != nil {
		base = e.url
	}
	s.sent++
	parts := []any{map[string]any{"type": "text", "text": "the router sends each page"}}
	for _, data := range images {
		part := map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64," + data}}
		if path == messagesPath {
			part = map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": "image/png", "data": data}}
		}
		parts = append(parts, part)
	}
	body := map[string]any{"model": "tiny", "max_tokens": 24, "temperature": 0, "messages": []any{map[string]any{"role": "user", "content": parts}}}
	if stream {
		body["stream"], body["stream_options"] = true, streamOptions(0)
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic("BUG: body that is no JSON: " + err.Error())
	}
	a, err := send(ctx, base, request{path: path, id: fmt.Sprint("e2e-encode-", s.sent), body: text})
	if err != nil {
		return answer{problems: []string{err.Error()}}
	}
	return a
}

// same reports whether two answers are the same but for what belongs to each alone.
func (s *sights) same(a, b answer) bool {
	cmp := &comparison{tolerance: logprobTolerance}
	cmp.compare("answer", a.content, b.content)
	return a.status == b.status && len(cmp.diffs) == 0
}

// equal judges an answer of xpyd's, which must have taken both legs.
func (s *sights) equal(what string, want, got answer) {
	cmp := &comparison{tolerance: logprobTolerance}
	cmp.compare("answer", want.content, got.content)
	problems := slices.Concat(want.problems, got.problems, cmp.diffs)
	switch {
	case want.status != 200 || got.status != 200:
		s.t.fail("%s: %s answers %d and xpyd %d: %.300v %v", what, s.decode.name, want.status, got.status, got.content, problems)
	case len(problems) > 0:
		s.t.fail("%s: %v", what, problems)
	case got.header.Get("X-Xpyd-Path") != "disaggregated":
		s.t.fail("%s: X-Xpyd-Path is %q, %s", what, got.header.Get("X-Xpyd-Path"), got.header.Get("X-Xpyd-Reason"))
	default:
		s.t.pass()
	}
}

// encodings are the hashes of those in the folder. Each has a folder of its own, which an engine that looks
// for it in vain leaves empty.
func (s *sights) encodings() (hashes []string) {
	files, err := filepath.Glob(filepath.Join(s.folder, "*", "encoder_cache.safetensors"))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, f := range files {
		hashes = append(hashes, filepath.Base(filepath.Dir(f)))
	}
	return hashes
}

func without(all, old []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(old, name) })
}

// picture is a PNG in base64 that no engine has seen.
func picture() string {
	const side = 64
	fresh := make([]byte, 3*side)
	_, _ = rand.Read(fresh)
	canvas := image.NewRGBA(image.Rect(0, 0, side, side))
	for x := range side {
		for y := range side {
			canvas.SetRGBA(x, y, color.RGBA{fresh[x], fresh[side+y], fresh[2*side+(x+y)%side], 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, canvas); err != nil {
		panic("BUG: an image that is no PNG: " + err.Error())
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
