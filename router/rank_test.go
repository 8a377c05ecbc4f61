package router

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRanksOfAURL(t *testing.T) {
	for raw, want := range map[string][]string{
		"http://H:8000":        {"http://h:8000"},
		"http://h:8000@3":      {"http://h:8000@3"},
		"https://h/@0":         {"https://h:443@0"},
		"http://h:8000@0..2":   {"http://h:8000@0", "http://h:8000@1", "http://h:8000@2"},
		"http://[::1]:80@7..7": {"http://[::1]:80@7"},
	} {
		if got, err := Ranks(raw); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"http://h:8000@2..0", "http://h:8000@0..", "http://h:8000@..1", "http://h:8000@0..9999", "http://h:8000@-1", "http://h:8000@01",
		"http://h:8000@9999", "http://u:secret@h:8000", "http://u:secret@h:8000@0..1", "http://u:secret@h@1", "http://h:8000/v1@0",
	} {
		if got, err := Ranks(raw); err == nil || strings.Contains(err.Error()+ShowURL(raw), "secret") {
			t.Errorf("%s: %q, %v, shown as %q", raw, got, err, ShowURL(raw))
		}
	}
	if got := ShowURL("http://h:8000@3"); got != "http://h:8000@3" {
		t.Errorf("shown as %q", got)
	}
}

// Ranks of an engine are backends of their own that share an address.
func TestBackendsOfRanks(t *testing.T) {
	s, _ := newTestRouter(t, "round_robin", nil, []string{"http://h:80@0", "http://h:80@1", "http://h:80"})
	for i, want := range []struct {
		url  string
		rank int
	}{{"http://h:80@0", 0}, {"http://h:80@1", 1}, {"http://h:80", NoRank}} {
		b := s.Backends(Decode)[i]
		if b.URL != want.url || b.Rank != want.rank || b.Addr != "h:80" || b.Host != "h:80" || b.Base() != "http://h:80" {
			t.Errorf("%s: rank %d, address %s, host %s, base %s", b.URL, b.Rank, b.Addr, b.Host, b.Base())
		}
	}
}

// Ranks of one engine change the pool one by one while requests run. A request whose other leg is on one of
// them gets none of the others, with an old snapshot or where it waits.
func TestNoRankOfTheEngineOfTheOtherLeg(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := DefaultConfig()
		before.Prefill, before.Decode = []string{"http://e:80@0", "http://p:80"}, []string{"http://d:80"}
		before.DecodeMaxInFlight = 1
		r, err := New(before, 1, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		old := r.Snapshot()
		rank, other := old.Backends(Prefill)[0], old.Backends(Prefill)[1]
		held := leaseOn(t, old, old.Backends(Decode)[0])
		var own, free Lease
		tied := wait(old, Want{Role: Decode, Tokens: 1, Peer: rank}, &own, Line{9, time.Minute}, nil)
		after := before
		after.Prefill, after.Decode = []string{"http://p:80"}, []string{"http://e:80@1", "http://e:80@2", "http://d:80"}
		if _, err := r.Reload(after, 1, nil); err != nil {
			t.Fatal(err)
		}
		if !pending(tied) {
			t.Fatalf("%s is to pull from another rank of its own engine", own.Backend.URL)
		}
		held.Release(OK)
		if err := <-tied; err != nil || own.Backend.URL != "http://d:80" {
			t.Errorf("%v, %v", own.Backend, err)
		}
		own.Release(OK)

		old = r.Snapshot()
		after.Decode = []string{"http://e:80@3"}
		if _, err := r.Reload(after, 1, nil); err != nil {
			t.Fatal(err)
		}
		var l Lease
		if err := old.AcquireFor(Want{Role: Decode, Tokens: 1, Peer: rank}, &l); !errors.Is(err, ErrNoBackend) {
			t.Errorf("%v is to pull from another rank of its own engine, %v", l.Backend, err)
		}
		if err := old.AcquireFor(Want{Role: Decode, Tokens: 1, Peer: other}, &free); err != nil || free.Backend.URL != "http://e:80@3" {
			t.Errorf("%v, %v", free.Backend, err)
		}
		free.Release(OK)
	})
}

func TestEachRank(t *testing.T) {
	for name, want := range map[string]string{"h:80@0..2": "h:80@0 h:80@1 h:80@2", "h:80@1": "h:80@1", "h:80": "h:80", "http://h:80@3..3": "http://h:80@3"} {
		if got, err := EachRank(name); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := EachRank("h:80@2..0"); err == nil {
		t.Errorf("%q", got)
	}
}
