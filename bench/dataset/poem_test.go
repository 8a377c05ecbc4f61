package dataset

import "testing"

// TestOwnPoem: without a file the prompts are from the tool's own poem. They have the requested length,
// even if that is longer than the poem.
func TestOwnPoem(t *testing.T) {
	for _, n := range []int{256, 1024, 4096} {
		set, err := New(t.Context(), Options{Kind: Sonnet, Count: 20, InputLen: n, OutputLen: 6, PrefixLen: 50}, bytePairs{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range set.Prompts {
			if p.Tokens > n || p.Tokens < n*9/10 || p.Limit != 6 {
				t.Errorf("%d tokens for %d, %d out", p.Tokens, n, p.Limit)
			}
		}
		if set.Prompts[0].Text == set.Prompts[1].Text {
			t.Error("all prompts are the same")
		}
	}
}
