package config

import (
	"fmt"
	"slices"
	"testing"

	"xpyd/router"
)

// The log shows no value of a secret, and a rack that joins at once makes no endless line.
func TestChangesAreFitForTheLog(t *testing.T) {
	was, now := Default(), Default()
	now.APIKeys, now.BackendAPIKey = []string{"sesame"}, "sesame"
	if _, _, list := Changes(was, now); !slices.Equal(list, []string{"api_keys", "backend_api_key"}) {
		t.Errorf("%q", list)
	}
	for i := range 1000 {
		now.Router.Decode = append(now.Router.Decode, router.MustEntries(fmt.Sprint("http://d:", i+1))...)
	}
	joined, left, list := Changes(was, now)
	if joined != 1000 || left != 0 || len(list) != maxListed+1 || list[maxListed] != fmt.Sprint(1002-maxListed, " more") {
		t.Errorf("%d joined, %d left, %d entries to %q", joined, left, len(list), list[len(list)-1])
	}
}

// A reload that drains a backend says so.
func TestChangesTellStates(t *testing.T) {
	was, now := Default(), Default()
	was.Router.Decode = router.MustEntries("http://d:1", "http://d:2 state=disabled")
	now.Router.Decode = router.MustEntries("http://d:1 state=drain", "http://d:2")
	_, _, list := Changes(was, now)
	if want := []string{"decode: state of http://d:1 ready -> drain", "decode: state of http://d:2 disabled -> ready"}; !slices.Equal(list, want) {
		t.Errorf("%q, want %q", list, want)
	}
}

// A change of the replay alone is told with what has changed.
func TestChangesTellReplays(t *testing.T) {
	was, now := Default(), Default()
	was.Router.Prefill = router.MustEntries("http://p:1 kv_events=tcp://*:1 kv_replay=tcp://*:2")
	now.Router.Prefill = router.MustEntries("http://p:1 kv_events=tcp://*:1 kv_replay=tcp://*:3")
	_, _, list := Changes(was, now)
	events := was.Router.Prefill[0].Events
	want := fmt.Sprintf("prefill: KV events of http://p:1 %s (kv_replay %s) -> %s (kv_replay %s)", events, was.Router.Prefill[0].Replay, events, now.Router.Prefill[0].Replay)
	if !slices.Equal(list, []string{want}) || was.Router.Prefill[0].Replay == now.Router.Prefill[0].Replay {
		t.Errorf("%q, want %q", list, want)
	}
}
