package cmd

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"xpyd/router"
)

// completeWords returns what the shell's completion gets for the last word.
func completeWords(t *testing.T, words ...string) []string {
	t.Helper()
	var out bytes.Buffer
	root := newRootCmd()
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append([]string{"__complete"}, words...))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestShellsCompleteValues(t *testing.T) {
	for _, command := range []string{"serve", "check"} {
		policies := completeWords(t, command, "--prefill-policy", "")
		if n := len(policies) - 1; n != len(router.Policies()) {
			t.Errorf("%s: %d policies, want %d: %q", command, n, len(router.Policies()), policies)
		}
		for _, line := range policies[:len(policies)-1] {
			name, help, _ := strings.Cut(line, "\t")
			if !slices.Contains(router.Policies(), name) || help == "" {
				t.Errorf("%s: %q", command, line)
			}
		}
	}
	for _, tc := range []struct {
		words []string
		want  []string
	}{
		{[]string{"serve", "--pd-mode", ""}, []string{"always\ta prefill of its own for each request that can be split; the default",
			"never\tdecode engines compute all prompts", "auto\teach request goes the way that is expected to be cheaper", ":4"}},
		{[]string{"serve", "--log-format=j"}, []string{"json\tan object a line; the default", "console\tfor people", ":4"}},
		{[]string{"serve", "--pprof="}, []string{"true", "false\tthe default", ":4"}},
		{[]string{"check", "--timeouts-dial", ""}, []string{"1s\tthe default, a duration", ":4"}},
		{[]string{"check", "--listen", ""}, []string{":4"}},
		{[]string{"check", "--api-key-file", ""}, []string{":0"}}, // files
		{[]string{"check", "--config", ""}, []string{":0"}},
	} {
		if got := completeWords(t, tc.words...); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.words, got, tc.want)
		}
	}
}
