package kvparams

import (
	"fmt"
	"testing"
)

func TestRelease(t *testing.T) {
	for v, want := range map[string]string{
		"0.32.0": "0 32 true", "0.31.1.dev3+cpu": "0 31 true", "1.0": "1 0 true", "0.33rc1": "0 33 true", "0.33": "0 33 true", "dev": "0 0 false", "": "0 0 false", "a.b": "0 0 false",
	} {
		major, minor, ok := Release(v)
		if got := fmt.Sprint(major, minor, ok); got != want {
			t.Errorf("%q: got %s, want %s", v, got, want)
		}
	}
}
