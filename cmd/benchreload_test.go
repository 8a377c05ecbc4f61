package cmd

import (
	"bytes"
	"regexp"
	"testing"

	"xpyd/tools/bench"
)

func TestBackendsThatComeAndGoLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := bench.Reload(t.Context(), shortReload(t, nil), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if want := regexp.MustCompile(`[1-9]\d* reloads, [1-9]\d* backends removed, .*; [1-9]\d* completions, [1-9]\d* more of clients that left`); !want.MatchString(out.String()) {
		t.Errorf("report lacks %s:\n%s", want, &out)
	}
}
