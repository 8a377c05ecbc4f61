package router

import (
	"slices"
	"strings"
	"testing"
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
