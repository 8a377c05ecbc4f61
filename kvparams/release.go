package kvparams

import (
	"strconv"
	"strings"
)

// Release reads the release of vLLM out of an engine's version: 0 and 32 of "0.32.1.dev3+cpu" and of "v0.32rc1".
func Release(version string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(rest[:digits])
	return major, minor, err == nil
}

// Since reports whether an engine's version is that of vLLM 0.minor or later. An unknown version is not.
func Since(version string, minor int) bool {
	major, of, ok := Release(version)
	return ok && (major > 0 || of >= minor)
}
