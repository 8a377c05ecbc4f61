package kvparams

// skims says that skim64 is there.
const skims = true

// skim64 reads the text of a string by 64 bytes, n bytes at most. It stops before the first 64 that hold the end of
// the string, a control character, a byte of 0x80 or more, or an escape that is not simple.
// plain is how much it has read, and escapes is how many escapes are in that.
//
//go:noescape
func skim64(b *byte, n int, simple *[256]bool) (plain, escapes int)
