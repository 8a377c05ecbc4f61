package sim_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"xpyd/sim"
)

func pooledAnswer(t *testing.T, url, body string, into any) int {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Errorf("%s: %v in %s", body, err, b)
	}
	return resp.StatusCode
}

// Both forms of an embedding hold the same vector. OpenAI's SDKs ask for base64.
func TestEmbeddings(t *testing.T) {
	e := start(t, sim.Options{})
	var floats struct {
		Data []struct{ Embedding []float32 }
	}
	if status := pooledAnswer(t, e.URL()+"/v1/embeddings", `{"model":"sim","input":["a","b"]}`, &floats); status != 200 || len(floats.Data) != 2 {
		t.Fatalf("%d %+v", status, floats)
	}
	if !slices.Equal(floats.Data[1].Embedding, sim.Embedding("b")) || slices.Equal(floats.Data[0].Embedding, floats.Data[1].Embedding) {
		t.Errorf("vectors %v", floats)
	}
	var coded struct {
		Data  []struct{ Embedding string }
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	pooledAnswer(t, e.URL()+"/v1/embeddings", `{"input":"b","encoding_format":"base64"}`, &coded)
	raw, err := base64.StdEncoding.DecodeString(coded.Data[0].Embedding)
	if err != nil || len(raw) != 4*len(sim.Embedding("b")) || coded.Usage.Prompt != 1 {
		t.Fatalf("%v %+v", err, coded)
	}
	for i, want := range sim.Embedding("b") {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])); got != want {
			t.Errorf("number %d is %v, want %v", i, got, want)
		}
	}
}

// The most similar document comes first, and no more than were asked for.
func TestRerank(t *testing.T) {
	e := start(t, sim.Options{})
	var a struct {
		Results []struct {
			Index int
			Score float64 `json:"relevance_score"`
		}
	}
	if status := pooledAnswer(t, e.URL()+"/rerank", `{"query":"q","documents":["a","b","c","d"],"top_n":3}`, &a); status != 200 || len(a.Results) != 3 {
		t.Fatalf("%d %+v", status, a)
	}
	for i, r := range a.Results {
		if want := sim.Similarity("q", string(rune('a'+r.Index))); r.Score != want || i > 0 && r.Score > a.Results[i-1].Score {
			t.Errorf("result %d: %+v, want %v", i, r, want)
		}
	}
}

func TestPoolingRefusals(t *testing.T) {
	e := start(t, sim.Options{})
	for body, want := range map[string]int{`{"model":"other","input":"a"}`: 404, `{}`: 400, `{"input":[]}`: 400, `{"input":7}`: 400, `{`: 400} {
		var a struct{ Error struct{ Code int } }
		if status := pooledAnswer(t, e.URL()+"/v1/embeddings", body, &a); status != want || a.Error.Code != want {
			t.Errorf("%s: %d %+v, want %d", body, status, a, want)
		}
	}
}
