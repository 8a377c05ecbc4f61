package sim

import "strings"

// bytesPerToken is the whole rule of the toy tokeniser. Every 4 bytes are a token, and its id is
// these bytes as a little-endian number.
const bytesPerToken = 4

func tokenCount(text string) int { return (len(text) + bytesPerToken - 1) / bytesPerToken }

func encode(text string) []int {
	ids := make([]int, 0, tokenCount(text))
	for ; len(text) >= bytesPerToken; text = text[bytesPerToken:] {
		ids = append(ids, int(text[0])|int(text[1])<<8|int(text[2])<<16|int(text[3])<<24)
	}
	if text == "" {
		return ids
	}
	last := 0
	for i := len(text) - 1; i >= 0; i-- {
		last = last<<8 | int(text[i])
	}
	return append(ids, last)
}

// pieces returns text cut into its tokens.
func pieces(text string) []string {
	all := make([]string, 0, tokenCount(text))
	for ; text != ""; text = text[min(bytesPerToken, len(text)):] {
		all = append(all, strings.ToValidUTF8(text[:min(bytesPerToken, len(text))], "\ufffd"))
	}
	return all
}

// decode undoes encode. Ids that no text has become replacement characters.
func decode(ids []int) string {
	var b strings.Builder
	for _, id := range ids {
		u := uint32(id)
		b.WriteByte(byte(u))
		for u >>= 8; u != 0; u >>= 8 {
			b.WriteByte(byte(u))
		}
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// Message is one chat message with text content.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ChatPrompt renders messages as every engine's chat template does. The answer to a chat completion
// is Text of it.
func ChatPrompt(messages ...Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString("<|")
		b.WriteString(m.Role)
		b.WriteString("|>")
		b.WriteString(m.Content)
		b.WriteString("\n")
	}
	b.WriteString("<|assistant|>")
	return b.String()
}

// TokensPrompt returns the text that a prompt of token ids stands for. Ids that /tokenize gave for
// a text stand for that text.
func TokensPrompt(ids ...int) string { return decode(ids) }
