package sim

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"time"
)

// This file answers the routes that one engine serves alone, in vLLM's shapes. What it answers depends
// on the texts only, so tests can tell it from another's.

// pooled is the answer of /v1/embeddings, /v1/score, /pooling and /classify.
type pooled struct {
	ID      string      `json:"id"`
	Object  string      `json:"object"`
	Created int64       `json:"created"`
	Model   string      `json:"model"`
	Data    []any       `json:"data"`
	Usage   pooledUsage `json:"usage"`
}

type pooledUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	TotalTokens      int `json:"total_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// Embedding is the vector of a text, of eight numbers from 0 to 1.
func Embedding(text string) []float32 {
	v := make([]float32, 8)
	for i := range v {
		h := fnv.New32a()
		_, _ = h.Write([]byte{byte(i)}) // a hash takes everything
		_, _ = h.Write([]byte(text))
		v[i] = float32(h.Sum32()) / math.MaxUint32
	}
	return v
}

// Similarity is the score of two texts, from 0 to 1.
func Similarity(a, b string) float64 { return float64(Embedding(a + "\x00" + b)[0]) }

// pool serves one of the pooling routes: one item of the answer for each text.
func (c *core) pool(x *exchange, kind string, member string, item func(f *fields, i int, text string) any) {
	f := parseFields(x.body)
	texts := c.inputs(f, member)
	if f.err != nil {
		x.fail(f.err)
		return
	}
	a := pooled{ID: kind + "-" + randomHex(16), Object: "list", Created: time.Now().Unix(), Model: c.o.Model}
	for i, text := range texts {
		a.Data = append(a.Data, item(f, i, text))
		a.Usage.PromptTokens += tokenCount(text)
	}
	a.Usage.TotalTokens = a.Usage.PromptTokens
	x.marshal(a)
}

// inputs checks the model and returns the texts of a member that is one text or a list of them.
func (c *core) inputs(f *fields, member string) (texts []string) {
	if f.err != nil {
		return nil
	}
	if model := f.text("model", true); f.err == nil && model != "" && model != c.o.Model {
		f.err = unknownModel(model, c.o.Model)
	}
	raw, ok := f.members[member]
	if !ok {
		f.missing(member)
		return nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	if json.Unmarshal(raw, &texts) != nil || len(texts) == 0 {
		f.fail("list_type", member, "Input should be a valid list")
	}
	return texts
}

func (c *core) embeddings(x *exchange) {
	c.pool(x, "embd", "input", func(f *fields, i int, text string) any {
		var vector any = Embedding(text)
		if f.text("encoding_format", true) == "base64" {
			var b bytes.Buffer
			_ = binary.Write(&b, binary.LittleEndian, Embedding(text)) // a buffer takes everything
			vector = base64.StdEncoding.EncodeToString(b.Bytes())
		}
		return map[string]any{"index": i, "object": "embedding", "embedding": vector}
	})
}

func (c *core) pooling(x *exchange) {
	c.pool(x, "pool", "input", func(_ *fields, i int, text string) any {
		return map[string]any{"index": i, "object": "pooling", "data": Embedding(text)}
	})
}

func (c *core) classify(x *exchange) {
	c.pool(x, "classify", "input", func(_ *fields, i int, text string) any {
		p := Embedding(text)[0]
		return map[string]any{"index": i, "label": "LABEL_0", "probs": []float32{p, 1 - p}, "num_classes": 2}
	})
}

func (c *core) score(x *exchange) {
	c.pool(x, "score", "text_2", func(f *fields, i int, text string) any {
		return map[string]any{"index": i, "object": "score", "score": Similarity(f.text("text_1", false), text)}
	})
}

func (c *core) rerank(x *exchange) {
	type result struct {
		Index    int               `json:"index"`
		Document map[string]string `json:"document"`
		Score    float64           `json:"relevance_score"`
	}
	f := parseFields(x.body)
	texts := c.inputs(f, "documents")
	query := f.text("query", false)
	most, _ := f.integer("top_n", true, len(texts))
	if f.err != nil {
		x.fail(f.err)
		return
	}
	var results []result
	tokens := 0
	for i, text := range texts {
		results = append(results, result{i, map[string]string{"text": text}, Similarity(query, text)})
		tokens += tokenCount(query) + tokenCount(text)
	}
	slices.SortFunc(results, func(a, b result) int { return int(math.Copysign(1, b.Score-a.Score)) })
	x.marshal(map[string]any{
		"id": "rerank-" + randomHex(16), "model": c.o.Model, "usage": map[string]int{"total_tokens": tokens}, "results": results[:min(most, len(results))],
	})
}

// render answers what a chat's prompt is in tokens, and computes nothing.
func (c *core) render(x *exchange) {
	f := parseFields(x.body)
	if f.err == nil {
		if model := f.text("model", true); f.err == nil && model != "" && model != c.o.Model {
			f.err = unknownModel(model, c.o.Model)
		}
	}
	if f.err == nil {
		prompt := ChatPrompt(readMessages(f, "messages")...)
		if f.err == nil {
			x.marshal(map[string]any{"request_id": "chatcmpl-" + randomHex(16), "token_ids": encode(prompt), "model": c.o.Model, "stream": false})
			return
		}
	}
	x.fail(f.err)
}

// Transcript is what the engine hears in an upload.
func Transcript(file []byte) string {
	h := fnv.New32a()
	_, _ = h.Write(file) // a hash takes everything
	return Text(string(appendHex(nil, int(h.Sum32()))), 4)
}

// transcribe answers an upload of audio, whole or as a stream.
func (c *core) transcribe(ctx context.Context, x *exchange) {
	_, params, err := mime.ParseMediaType(x.req.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		x.fail(&apiError{status: http.StatusBadRequest, kind: "BadRequestError", message: "the body is no form"})
		return
	}
	form, err := multipart.NewReader(bytes.NewReader(x.body), params["boundary"]).ReadForm(int64(len(x.body)))
	if err != nil || len(form.File["file"]) != 1 {
		x.fail(&apiError{status: http.StatusBadRequest, kind: "BadRequestError", param: "file", message: "Field required"})
		return
	}
	defer func() { _ = form.RemoveAll() }()
	if model := first(form.Value["model"]); model != "" && model != c.o.Model {
		x.fail(unknownModel(model, c.o.Model))
		return
	}
	file, err := form.File["file"][0].Open()
	if err != nil {
		panic("BUG: a file in memory does not open: " + err.Error())
	}
	var b bytes.Buffer
	_, _ = b.ReadFrom(file) // it is in memory
	text := Transcript(b.Bytes())
	if first(form.Value["stream"]) == "true" {
		c.streamTranscript(ctx, x, text)
		return
	}
	x.marshal(map[string]any{"text": text, "usage": map[string]any{"type": "duration", "seconds": 1}})
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// streamTranscript sends a word an event.
func (c *core) streamTranscript(ctx context.Context, x *exchange, text string) {
	if x.stream() != nil {
		return
	}
	words := strings.SplitAfter(text, " ")
	for i, word := range words {
		choice := map[string]any{"delta": map[string]string{"content": word}, "finish_reason": nil}
		if i == len(words)-1 {
			choice["finish_reason"] = "stop"
		}
		event, err := json.Marshal(map[string]any{"id": "trsc-1", "object": "transcription.chunk", "created": time.Now().Unix(), "model": c.o.Model, "choices": []any{choice}})
		if err != nil {
			panic("BUG: an event does not marshal: " + err.Error())
		}
		if ctx.Err() != nil || x.write(x.frame([]byte("data: "+string(event)+"\n\n"))) != nil {
			return
		}
	}
	if x.write(x.frame([]byte("data: [DONE]\n\n"))) == nil {
		_ = x.endStream() // a client that has gone misses it
	}
}
