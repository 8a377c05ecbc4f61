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
		"https://H@auto":       {"https://h:443@auto"},
	} {
		if got, err := Ranks(raw); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"http://h:8000@2..0", "http://h:8000@0..", "http://h:8000@..1", "http://h:8000@0..9999", "http://h:8000@-1", "http://h:8000@01",
		"http://h:8000@9999", "http://u:secret@h:8000", "http://u:secret@h:8000@0..1", "http://u:secret@h@1", "http://h:8000/v1@0",
		"http://h:8000@automatic", "http://h:8000@auto..3", "http://u:secret@h:8000@auto", "http://h:8000/v1@auto",
	} {
		if got, err := Ranks(raw); err == nil || strings.Contains(err.Error()+ShowURL(raw), "secret") {
			t.Errorf("%s: %q, %v, shown as %q", raw, got, err, ShowURL(raw))
		}
	}
	for raw, want := range map[string]string{
		"http://h:8000@AUTO":          "must have a rank, a range such as 0..7, or auto after @",
		"http://h:8000@aut":           "must have a rank, a range such as 0..7, or auto after @",
		"http://h:8000@auto/":         "must have a rank, a range such as 0..7, or auto after @",
		"http://h:8000@9999":          "must have a rank, a range such as 0..7, or auto after @",
		"http://u:secret@h:8000":      "must hold no user or password; use --backend-api-key-file",
		"http://u:1234@h:8000":        "must hold no user or password; use --backend-api-key-file",
		"http://u@h":                  "must hold no user or password; use --backend-api-key-file",
		"http://u:1234567@h":          "must hold no user or password; use --backend-api-key-file",
		"http://u:secret@h:8000@auto": "must hold no user or password; use --backend-api-key-file",
	} {
		if _, err := Ranks(raw); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
	for raw, want := range map[string]string{
		"http://H": "http://h:80", "https://h/": "https://h:443", "http://h:1/vllm-a": "http://h:1/vllm-a", "http://h:1/A/b.c_~/": "http://h:1/A/b.c_~",
		"http://h:1/a@3": "http://h:1/a@3", "http://[::1]:1/a@auto": "http://[::1]:1/a@auto",
	} {
		got, err := BaseURL(raw)
		if again, twice := BaseURL(got); got != want || err != nil || again != want || twice != nil || ShowURL(raw) != raw {
			t.Errorf("%s: %q, %v, then %q, %v, shown as %q; want %q", raw, got, err, again, twice, ShowURL(raw), want)
		}
	}
	if _, err := BaseURL("http://h:8000@0..7"); err == nil || !strings.HasPrefix(err.Error(), "must have one rank or auto after @ here") {
		t.Errorf("a range where one backend is named: %v", err)
	}
	for raw, want := range map[string]string{
		"http://h:8000@3": "http://h:8000@3", "http://h:8000@auto": "http://h:8000@auto", "h:8000@3": "h:8000@3", "[::1]:80@auto": "[::1]:80@auto",
		"u:secret@h:8000": "h:8000", "u:secret@7": "7", "secret@7": "7", "u:secret@h:8000@3": "h:8000@3", "h:8000?key=secret@3": "3",
		// What is no rank is shown as it is written, and what may be a password is not.
		"http://127.0.0.1:18200@0..x": "http://127.0.0.1:18200@0..x", "http://h:1@3x": "http://h:1@3x", "http://h:70000@3": "http://h:70000@3",
		"http://[::1]:80@9999": "http://[::1]:80@9999", "http://h:1@..1": "http://h:1@..1", "http://h:1@-1": "http://h:1@-1", "http://h:1@AUTO": "http://h:1@AUTO",
		"http://h:1@auto/": "http://h:1@auto/", "http://H@3": "http://H@3", "http://u:secret@h:1@0..x": "http://h:1@0..x",
		"http://u:1234@10.0.0.1": "http://10.0.0.1", "http://u:1234@h:8000": "http://h:8000", "http://u:1234@7.example": "http://7.example", "http://u:1234@h": "http://h",
		"http://u:secret@0..x": "http://0..x", "http://u:1234@h/?key=secret@3": "http://3",
	} {
		if got := ShowURL(raw); got != want {
			t.Errorf("%s is shown as %q, want %q", raw, got, want)
		}
	}
}

// An engine whose ranks nobody knows yet gets no requests, whatever its checks find.
func TestNoRequestsBeforeTheRanksAreKnown(t *testing.T) {
	s, _ := newTestRouter(t, "round_robin", nil, []string{"http://h:80@auto"})
	b := s.Backends(Decode)[0]
	b.Observe(true)
	b.Observe(true)
	if b.URL != "http://h:80@auto" || b.Rank != AutoRank || b.Base() != "http://h:80" || b.State() != Down {
		t.Errorf("%s: rank %d, base %s, %v", b.URL, b.Rank, b.Base(), b.State())
	}
	var l Lease
	if err := s.AcquireFor(Want{Role: Decode, Tokens: 1}, &l); !errors.Is(err, ErrNoBackend) {
		t.Errorf("%v, %v", l.Backend, err)
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
		before.Prefill, before.Decode = MustEntries("http://e:80@0", "http://p:80"), MustEntries("http://d:80")
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
		after.Prefill, after.Decode = MustEntries("http://p:80"), MustEntries("http://e:80@1", "http://e:80@2", "http://d:80")
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
		after.Decode = MustEntries("http://e:80@3")
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

func TestPartOf(t *testing.T) {
	for backend, of := range map[string]map[string]bool{
		"http://h:80":      {"http://h:80": true, "http://h:80@auto": true, "http://h:80@0": false, "http://h:8@auto": false},
		"http://h:80@1":    {"http://h:80@1": true, "http://h:80@auto": true, "http://h:80": false, "http://h:80@11": false, "http://h:80@0": false},
		"http://h:80@auto": {"http://h:80@auto": true, "http://h:80": false},
	} {
		for url, want := range of {
			if got := PartOf(backend, url); got != want {
				t.Errorf("%s is a part of %s: %v", backend, url, got)
			}
		}
	}
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
