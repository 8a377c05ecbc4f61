package gate

import (
	"strings"
	"testing"
)

func TestKeyringAllow(t *testing.T) {
	ring := []string{"sk-first", "sk-second", "with space"}
	cases := []struct {
		name          string
		keys          []string
		authorization string
		want          bool
	}{
		{"no keys, nothing shown", nil, "", true},
		{"no keys, something shown", nil, "Bearer whatever", true},
		{"first key", ring, "Bearer sk-first", true},
		{"second key", ring, "Bearer sk-second", true},
		{"scheme in lower case", ring, "bearer sk-first", true},
		{"scheme in capitals", ring, "BEARER sk-first", true},
		{"several spaces before the key", ring, "Bearer   sk-first", true},
		{"space inside the key", ring, "Bearer with space", true},
		{"a key given twice", []string{"sk-a", "sk-a"}, "Bearer sk-a", true},

		{"nothing shown", ring, "", false},
		{"scheme only", ring, "Bearer", false},
		{"scheme and a space", ring, "Bearer ", false},
		{"no scheme", ring, "sk-first", false},
		{"other scheme", ring, "Basic sk-first", false},
		{"scheme with more letters", ring, "Bearers sk-first", false},
		{"tab for the space", ring, "Bearer\tsk-first", false},
		{"unknown key", ring, "Bearer sk-third", false},
		{"part of a key", ring, "Bearer sk-firs", false},
		{"key and more", ring, "Bearer sk-first2", false},
		{"two keys", ring, "Bearer sk-first sk-second", false},
		{"key in other case", ring, "Bearer SK-FIRST", false},
		{"megabyte of key", ring, "Bearer " + strings.Repeat("k", 1<<20), false},
		{"an empty key in the ring lets nobody in", []string{""}, "Bearer ", false},
		{"nor without a header", []string{""}, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := NewKeyring(c.keys).Allow([]byte(c.authorization)); got != c.want {
				t.Errorf("Allow(%.40q) = %v, want %v", c.authorization, got, c.want)
			}
		})
	}
}

func TestKeyringAllowAllocatesNothing(t *testing.T) {
	k := NewKeyring([]string{"sk-first", "sk-second"})
	for _, value := range []string{"Bearer sk-second", "Bearer sk-none", "", "Basic x"} {
		authorization := []byte(value)
		if n := testing.AllocsPerRun(100, func() { k.Allow(authorization) }); n != 0 {
			t.Errorf("Allow(%q): %v allocations, want 0", value, n)
		}
	}
}

func BenchmarkKeyringAllow(b *testing.B) {
	k := NewKeyring([]string{"sk-first", "sk-second"})
	authorization := []byte("Bearer sk-second")
	b.ReportAllocs()
	for b.Loop() {
		if !k.Allow(authorization) {
			b.Fatal("refused")
		}
	}
}
