package limits

// What a prompt costs until its engine has counted it. The figures are fixed, because those that xpyd learns depend on the
// prompts of all keys.
const (
	textBytes   = 4    // of a token of English text
	imageTokens = 1300 // 1,024 by 1,024 pixels for Qwen2.5-VL
	// SoundTokens is about half a minute for Qwen2-Audio.
	SoundTokens = 800
	videoTokens = 8000
	// SecondTokens is what a second of a sound costs whose engine tells no tokens, but its length.
	SecondTokens = 25
)

// Estimate is the tokens of a prompt with so many bytes of text, images, sounds and videos.
func Estimate(bytes, images, sounds, videos int) int {
	return bytes/textBytes + images*imageTokens + sounds*SoundTokens + videos*videoTokens
}
