package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"xpyd/router"
	"xpyd/sim"
)

// chatBody is a chat whose messages have these numbers of bytes. The first is the user's.
func chatBody(messages ...string) string {
	var list []string
	for i, m := range messages {
		list = append(list, fmt.Sprintf(`{"role":%q,"content":%q}`, []string{"user", "assistant"}[i%2], m))
	}
	return fmt.Sprintf(`{"messages":[%s],"max_tokens":3}`, strings.Join(list, ","))
}

// The next turn of a chat finds its blocks, by the engines' own counters. round_robin is the
// control that does not.
func TestNextTurnFindsItsBlocks(t *testing.T) {
	together(t)
	for _, policy := range []string{"prefix", "round_robin"} {
		t.Run(policy, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: 3, decode: 1, router: func(c *router.Config) { c.PrefillPolicy, c.Routing.PrefixMemory = policy, 4<<20 }})
			const chats = 10 // so many do not all have one home; and no multiple of the number of engines, so round_robin chooses another one
			turns := make([][]string, chats)
			for turn := range 3 {
				for chat := range turns {
					turns[chat] = append(turns[chat], strings.Repeat(fmt.Sprintf("turn %d of chat %d, ", turn, chat), 100))
					if a := r.post("/v1/chat/completions", chatBody(turns[chat]...)); a.status != 200 {
						t.Fatalf("turn %d of chat %d: %d %s", turn, chat, a.status, a.body)
					}
					turns[chat] = append(turns[chat], "The answer.")
				}
			}
			var all []sim.Record
			r.await("recorded", func() bool { all = legs(r.prefill, "prefill"); return len(all) == 3*chats })
			found := 0
			for _, rec := range all {
				if rec.CachedTokens > 0 {
					found++
				}
			}
			if want := map[string]int{"prefix": 2 * chats, "round_robin": 0}[policy]; found < want || policy == "round_robin" && found > chats {
				t.Errorf("%d of %d next turns found blocks of their chat", found, 2*chats)
			}
			var used []string
			for _, rec := range all {
				used = append(used, rec.Engine)
			}
			slices.Sort(used)
			if n := len(slices.Compact(used)); n < 2 {
				t.Errorf("%d engines for %d chats", n, chats)
			}
			r.expectNothingHeld()
		})
	}
}
