package verify

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
)

// pictures is how many images each encode engine gets of the row about them. xpyd picks the engine with
// the fewest requests, so one each could all go to the same.
const pictures = 2

// Picture is a part of a chat with an image that no engine has encoded.
func Picture() map[string]any {
	const side = 64
	fresh := make([]byte, side)
	rand.Read(fresh)
	canvas := image.NewRGBA(image.Rect(0, 0, side, side))
	for x := range side {
		for y := range side {
			canvas.SetRGBA(x, y, color.RGBA{fresh[x], fresh[y], fresh[(x+y)%side], 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, canvas); err != nil {
		panic("BUG: an image that is no PNG: " + err.Error())
	}
	url := "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
	return map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}}
}

// Sound is the same with a sound: half a second of noise, 16,000 samples a second.
func Sound() map[string]any {
	const rate, samples = 16000, 8000
	var b bytes.Buffer
	b.WriteString("RIFF")
	for _, v := range []any{
		uint32(36 + 2*samples), []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1), uint32(rate), uint32(2 * rate), uint16(2), uint16(16),
		[]byte("data"), uint32(2 * samples),
	} {
		_ = binary.Write(&b, binary.LittleEndian, v) // a buffer takes everything
	}
	noise := make([]byte, 2*samples)
	rand.Read(noise)
	b.Write(noise)
	return map[string]any{"type": "input_audio", "input_audio": map[string]any{"data": base64.StdEncoding.EncodeToString(b.Bytes()), "format": "wav"}}
}

// encode sends images through the proxy. The encode engines must have had each, and the answers must be those
// of decode alone, which encodes by itself.
func (r *run) encode(ctx context.Context) Row {
	item, row := r.encodable(ctx)
	if row != nil {
		return *row
	}
	if _, err := r.quiet(ctx); err != nil { // otherwise other requests count
		return failed(err)
	}
	before, err := r.encoders(ctx)
	if err != nil {
		return failed(err)
	}
	n := pictures * len(r.Encode)
	for range n {
		body := r.greedy(chat, "", 8)
		body["messages"] = []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": r.prompt(shortPrompt)}, item()}}}
		want, row := r.same(ctx, chat, body)
		switch {
		case row != nil:
			return *row
		case want.status != http.StatusOK:
			return bad("the encode engines take what decode refuses (%d): %s", want.status, want.reason())
		}
	}
	had := since(before, before)
	for range int(countWait / look) {
		now, err := r.encoders(ctx)
		if err != nil {
			return failed(err)
		}
		if had = since(now, before); had.value[finished] >= float64(n) {
			break
		}
		if err := sleep(ctx, look); err != nil {
			return failed(err)
		}
	}
	if had.value[finished] < float64(n) {
		return bad("of %d items the encode engines had %v, and the prefill engines encoded the others; are they in encode of xpyd, and up?", n, had.value[finished])
	}
	return good("%d items, each on an encode engine; the answers are those of decode alone", n)
}

// encodable asks each encode engine for one item, as xpyd does, and returns what makes more of them.
func (r *run) encodable(ctx context.Context) (item func() map[string]any, row *Row) {
	item = Picture
	for i, url := range r.Encode {
		a, err := r.encodeAlone(ctx, url, item())
		if err == nil && i == 0 && a.status == http.StatusBadRequest {
			if heard, again := r.encodeAlone(ctx, url, Sound()); again == nil && heard.status == http.StatusOK {
				a, item = heard, Sound
			}
		}
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("status %d, %s", a.status, a.reason())
		}
		if err != nil {
			verdict := bad("encode %s does not encode: %v", url, err)
			return nil, &verdict
		}
	}
	return item, nil
}

func (r *run) encodeAlone(ctx context.Context, url string, item map[string]any) (*answer, error) {
	body := map[string]any{"model": r.model, "max_tokens": 1, "stream": false, "messages": []any{map[string]any{"role": "user", "content": []any{item}}}}
	return r.send(ctx, call{base: url, path: chat, key: r.EngineKey, id: "xpyd-verify-encode-" + rand.Text(), body: text(body)})
}

// encoders looks at the encode engines.
func (r *run) encoders(ctx context.Context) (now []page, err error) {
	for _, url := range r.Encode {
		p, err := r.page(ctx, url)
		if err != nil {
			return nil, err
		}
		if !p.has[finished] {
			return nil, undecided{fmt.Errorf("encode %s shows no %s", url, sources()[finished].name)}
		}
		now = append(now, p)
	}
	return now, nil
}
