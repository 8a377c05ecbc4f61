//go:build !amd64

package kvparams

const skims = false

func skim64(*byte, int, *[256]bool) (plain, escapes int) { return 0, 0 }
