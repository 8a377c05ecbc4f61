package kvparams

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// blockBytes is the size of most tests' blocks, and mediaBlocks how many of them an image counts for.
const blockBytes, mediaBlocks = 256, mediaBytes / 256

// prose is n bytes of text that does not repeat.
func prose(seed uint64, n int) string {
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnop qrstuvwxyz"[rnd.IntN(27)]
	}
	return string(b)
}

func common(a, b []uint64) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestBlocksOfTwoRequests(t *testing.T) {
	sys, user, more := prose(1, 3000), prose(2, 5000), prose(3, 4000)
	message := func(role, text string) string { return `{"role":"` + role + `","content":"` + text + `"}` }
	first := message("system", sys) + "," + message("user", user)
	chat := func(members, messages string) string {
		return `{"model":"m",` + members + `"messages":[` + messages + `]}`
	}
	tools := `"tools":["` + prose(4, 1000) + `"],`
	const all = -1
	cases := []struct {
		name string
		api  API
		a, b string
		want int // blocks in common
	}{
		{"the same", Chat, chat("", first), chat("", first), all},
		{"the next turn", Chat, chat("", first), chat("", first+","+message("assistant", more)+","+message("user", "and?")), all},
		{"another question", Chat, chat("", first), chat("", message("system", sys)+","+message("user", more)), 3000 / blockBytes},
		{"members in another order", Chat, chat(`"cache_salt":"s","documents":[1],`, first),
			`{"documents":[1],"messages":[` + first + `],"cache_salt":"s","model":"m"}`, all},
		{"sampling does not matter", Chat, chat("", first),
			chat(`"temperature":0.5,"stream":true,"max_tokens":7,"tool_choice":"none","response_format":{"type":"text"},`, first), all},
		{"null is absent", Chat, chat("", first), chat(`"tools":null,"cache_salt":null,"documents":null,`, first), all},
		{"another model", Chat, chat("", first), `{"model":"n","messages":[` + first + `]}`, 0},
		{"other tools", Chat, chat(tools, first), chat("", first), 0},
		{"the tools are part of the prompt", Chat, chat(tools, message("user", user)), chat(tools, message("user", more)), 1000 / blockBytes},
		{"cache_salt", Chat, chat(`"cache_salt":"s",`, first), chat(`"cache_salt":"t",`, first), 0},
		{"chat_template_kwargs", Chat, chat(`"chat_template_kwargs":{"a":1},`, first), chat("", first), 0},
		{"escaped model", Chat, chat("", first), `{"model":"\u006d","messages":[` + first + `]}`, all},
		{"two fields do not cancel out", Chat, chat(`"documents":"x","chat_template":"x",`, first), chat("", first), 0},
		{"two fields swapped", Chat, chat(`"documents":"x","chat_template":"y",`, first), chat(`"documents":"y","chat_template":"x",`, first), 0},
		{"text prompt", Completions, `{"prompt":"` + user + `"}`, `{"prompt":"` + user + more + `"}`, all},
		{"token ids", Completions, `{"prompt":[` + strings.Repeat("128000,", 500) + `7]}`, `{"prompt":[` + strings.Repeat("128000,", 500) + `7,8,9]}`, all},
		{"list of one", Completions, `{"prompt":["` + user + `"]}`, `{"prompt":["` + user + `"]}`, all},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := parse(t, c.api, c.a).Blocks(blockBytes), parse(t, c.api, c.b).Blocks(blockBytes)
			want := c.want
			if want == all {
				want = len(a)
			}
			if len(a) < 4 || common(a, b) != want {
				t.Errorf("%d blocks in common of %d and %d, want %d", common(a, b), len(a), len(b), want)
			}
		})
	}
}

// Other sizes of a block have as many blocks as fit, of which the first say what larger ones say too.
func TestBlocksOfOtherSizes(t *testing.T) {
	text := prose(1, 10_000)
	for _, size := range []int{64, 256, 1000, 64 << 10} {
		a := parse(t, Completions, `{"prompt":"`+text+`"}`).Blocks(size)
		b := parse(t, Completions, `{"prompt":"`+text[:5000]+`"}`).Blocks(size)
		if len(a) != len(text)/size || len(b) != 5000/size || !slices.Equal(a[:len(b)], b) {
			t.Errorf("%d bytes: %d and %d blocks", size, len(a), len(b))
		}
	}
	r := parse(t, Chat, `{"messages":[{"role":"user","content":"`+text+`"}]}`)
	if r.Conversation(64) == 0 || len(r.Blocks(64)) < 10_000/64 {
		t.Errorf("%d blocks of a chat, conversation %d", len(r.Blocks(64)), r.Conversation(64))
	}
}

func TestRequestsWithoutBlocks(t *testing.T) {
	long := prose(1, 2000)
	cases := []struct {
		name string
		api  API
		body string
	}{
		{"no prompt", Chat, `{"model":"m"}`},
		{"null", Chat, `{"messages":null}`},
		{"several prompts", Completions, `{"prompt":["` + long + `","` + long + `"]}`},
		{"embeddings", Completions, `{"prompt":"` + long + `","prompt_embeds":"AAAA"}`},
		{"messages of a plain completion", Completions, `{"messages":["` + long + `"]}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, c.api, c.body)
			if n := len(r.Blocks(blockBytes)); n != 0 {
				t.Errorf("%d blocks", n)
			}
		})
	}
}

func TestToolsArePartOfThePromptsSize(t *testing.T) {
	r := parse(t, Chat, `{"tools":["abcd"],"messages":["ef"],"documents":["not counted"]}`)
	if n := r.PromptBytes(); n != 8+6 {
		t.Errorf("%d bytes", n)
	}
}

func TestBlocksAreBounded(t *testing.T) {
	r := parse(t, Completions, `{"prompt":"`+prose(1, 5<<20)+`"}`)
	if n := len(r.Blocks(blockBytes)); n != 16384 {
		t.Errorf("%d blocks of 5 MiB", n)
	}
	r.Reset()
	if r.Blocks(blockBytes) != nil {
		t.Error("a Request keeps the room of a huge prompt")
	}
	r = parse(t, Chat, `{`+strings.Repeat(`"tools":1,`, 1000)+`"messages":[1]}`)
	if n := len(r.rendered); n != maxRendered {
		t.Errorf("%d members noted", n)
	}
}

// Replicas agree only if no seed is drawn and no release changes the hash.
func TestBlocksAreTheSameInEachProcess(t *testing.T) {
	r := parse(t, Chat, `{"model":"m","tools":[1],"cache_salt":"s","messages":[{"role":"user","content":"`+strings.Repeat("x", 600)+`"}]}`)
	want := []uint64{0x6e72a470caa4c560, 0x8fe9cba1d816b0fa}
	if got := r.Blocks(blockBytes); !slices.Equal(got, want) || r.Conversation(blockBytes) != 0xb8e2635e3d967890 {
		t.Errorf("blocks %#x, conversation %#x", got, r.Conversation(blockBytes))
	}
}

func TestConversation(t *testing.T) {
	system := `{"role":"system","content":"` + prose(1, 2000) + `"}`
	question := func(n uint64) string { return `{"role":"user","content":"` + prose(n, 300) + `"}` }
	body := func(messages ...string) string { return `{"messages":[` + strings.Join(messages, ",") + `]}` }
	document := func(tail string) string { return `{"role":"user","content":"` + prose(9, 70<<10) + tail + `"}` }
	cases := []struct {
		name string
		a, b string
		same bool
	}{
		{"the next turn", body(system, question(2)), body(system, question(2), `{"role":"assistant","content":"A"}`, question(3)), true},
		{"the next turn without a system message", body(question(2)), body(question(2), `{"role":"assistant","content":"A"}`, question(3)), true},
		{"another question to the same system", body(system, question(2)), body(system, question(3)), false},
		{"two system messages", body(system, `{ "role" : "developer","content":"d"}`, question(2)), body(system, `{ "role" : "developer","content":"d"}`, question(3)), false},
		{"another question on a long document", body(document("Why?")), body(document("How?")), true},
		{"shorter than a block", body(`{"role":"user","content":"a"}`), body(`{"role":"user","content":"b"}`), false},
		{"another model", body(question(1)), `{"model":"m","messages":[` + question(1) + `]}`, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := parse(t, Chat, c.a).Conversation(blockBytes), parse(t, Chat, c.b).Conversation(blockBytes)
			if a == 0 || b == 0 || (a == b) != c.same {
				t.Errorf("%#x and %#x, want the same: %v", a, b, c.same)
			}
		})
	}
	if got := parse(t, Completions, `{"prompt":"`+prose(5, 9000)+`"}`).Conversation(blockBytes); got != 0 {
		t.Errorf("a plain prompt, whose first turn nobody knows: %#x", got)
	}
}

// FuzzBlocks wants requests to share as many hashes as their prompts share blocks, whatever the
// text is.
func FuzzBlocks(f *testing.F) {
	f.Add("abc", "abd", uint16(100))
	f.Add(`\n\u00e9`, `"`, uint16(1))
	f.Fuzz(func(t *testing.T, a, b string, repeat uint16) {
		same := strings.Repeat("the same text ", int(repeat)%500)
		x, y := fmt.Sprintf("%q", same+a), fmt.Sprintf("%q", same+b)
		var rx, ry Request
		if rx.Parse(Completions, []byte(`{"prompt":`+x+`}`)) != nil || ry.Parse(Completions, []byte(`{"prompt":`+y+`}`)) != nil {
			return
		}
		want := 0
		for x, y = x[:len(x)-1], y[:len(y)-1]; len(x) >= blockBytes && len(y) >= blockBytes && x[:blockBytes] == y[:blockBytes]; want++ {
			x, y = x[blockBytes:], y[blockBytes:]
		}
		if got := common(rx.Blocks(blockBytes), ry.Blocks(blockBytes)); got != want {
			t.Errorf("%d hashes in common, %d blocks", got, want)
		}
	})
}

// BenchmarkBlocks measures what the hashes cost on top of the scan. Compare the ns/byte of both:
// they may add 0.3.
func BenchmarkBlocks(b *testing.B) {
	for _, size := range []int{1 << 10, 40 << 10, 4 << 20} {
		body := chatBody(size)
		for _, hash := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dKB/hash=%v", size>>10, hash), func(b *testing.B) {
				var r Request
				b.ReportAllocs()
				for b.Loop() {
					if err := r.Parse(Chat, body); err != nil {
						b.Fatal(err)
					}
					if hash && r.Conversation(blockBytes) == 0 { // also hashes the blocks
						b.Fatal("not hashed")
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(body)), "ns/byte")
			})
		}
	}
}
