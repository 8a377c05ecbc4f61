package sim

import (
	"hash/fnv"
	"io"
	"strconv"
	"strings"
)

// naturalEnd is how many tokens an answer has when the request sets no limit. It then ends with
// finish_reason "stop".
const naturalEnd = 64

// bigTokenBytes is the size of the one huge token of a [[text:big]] answer.
const bigTokenBytes = 200 << 10

// Text returns the first n tokens of the answer to prompt, as one string. Every engine answers a
// prompt with the same text. For a chat completion the prompt is ChatPrompt of its messages.
func Text(prompt string, n int) string { return ChoiceText(prompt, 0, n) }

// ChoiceText is Text for the choice-th of several choices (n > 1).
func ChoiceText(prompt string, choice, n int) string {
	s := newScript(prompt, choice)
	var b strings.Builder
	for i := range n {
		b.WriteString(s.token(i))
	}
	return b.String()
}

// script is the answer to one prompt, token by token.
type script struct {
	seed  uint64
	style string // the NAME of a [[text:NAME]] marker
	from  int    // tokens of it that the prompt has already
	wrong bool   // computed from foreign KV, and every token shows it
}

func newScript(prompt string, choice int) script {
	return script{seed: mix(hashText(prompt), uint64(choice)), style: textStyle(prompt)}
}

// newWrongScript returns the answer if the KV blocks that were read for prompt hold other KV. Only
// the content of the text shows the error.
func newWrongScript(prompt string, choice int, contents []uint64) script {
	s := newScript(prompt, choice)
	s.wrong = true
	for _, c := range contents {
		s.seed = mix(s.seed, c)
	}
	return s
}

func (s script) token(i int) string {
	i += s.from
	h := mix(s.seed, uint64(i))
	if s.wrong {
		return " WRONG-KV-" + strconv.FormatUint(h&0xffff, 16)
	}
	if text, ok := styledToken(s.style, i); ok {
		return text
	}
	word := words[h%uint64(len(words))]
	if i == 0 {
		return word
	}
	return " " + word
}

// styledToken returns the adversarial token of a style, or false for an ordinary one.
func styledToken(style string, i int) (string, bool) {
	switch {
	case style == "done" && i%3 == 1:
		return "\n\ndata: [DONE]\n\n", true
	case style == "finish" && i%3 == 1:
		return `{"finish_reason":"stop"}],"error":{`, true
	case style == "big" && i == 1:
		return strings.Repeat("0123456789abcdef", bigTokenBytes/16), true
	case style == "empty" && i%2 == 0:
		return "", true
	case style == "utf8" && i%2 == 0:
		return "", true // an unfinished character, whose bytes come with the next token
	case style == "utf8":
		return "\u00e9\u6f22\U0001f642\u2028", true
	case style == "escape" && i%2 == 1:
		return "\"\\/\b\f\n\r\t\u0001</script>", true
	}
	return "", false
}

// textStyle returns the NAME of the first [[text:NAME]] in prompt, or "".
func textStyle(prompt string) string {
	_, rest, found := strings.Cut(prompt, "[[text:")
	if !found {
		return ""
	}
	name, _, found := strings.Cut(rest, "]]")
	if !found {
		return ""
	}
	return name
}

// eosAfter returns the token count at which a [[text:eos@N]] answer ends by itself.
func (s script) eosAfter() (int, bool) {
	count, found := strings.CutPrefix(s.style, "eos@")
	if !found {
		return 0, false
	}
	n, err := strconv.Atoi(count)
	return max(n-s.from, 1), err == nil && n > 0
}

var words = strings.Fields(`
	amber anchor arch atlas basin beacon birch bloom breeze bridge cabin cedar chalk cliff cloud coast
	comet copper coral crane creek delta drift dune ember fable fern field flint forest frost garden
	glade grain grove harbor hazel heron hollow island ivory juniper kelp lagoon lantern larch ledge linen
	maple marsh meadow mist moss north opal orbit otter pebble pine prairie quartz reef river sail`)

// hashText is FNV-1a, and mix is one round of splitmix64. They are part of the text's definition,
// on which two processes must agree.
func hashText(s string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s) // a hash's Write never fails
	return h.Sum64()
}

func mix(a, b uint64) uint64 {
	z := a + b*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
