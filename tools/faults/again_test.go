package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const shaky = `package shaky

import (
	"os"
	"testing"
)

func TestOnce(t *testing.T) {
	if os.Mkdir("failed", 0o700) == nil {
		t.Error("the first run fails")
	}
}

func TestSound(*testing.T)    {}
func TestAlways(t *testing.T) { t.Error("always") }
func TestSecond(t *testing.T) { t.Error("always") }
func TestThird(t *testing.T)  { t.Error("always") }
func TestPanic(*testing.T)    { panic("always") }
`

func TestFailedTestGetsASecondRun(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"go.mod": "module shaky\n\ngo 1.26\n", "shaky_test.go": shaky} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := newBench(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.build(t.Context(), []string{"TestOnce"}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		tests []string
		again []string
		bad   []string
	}{
		{"one", []string{"TestOnce", "TestSound"}, []string{"TestOnce"}, nil},
		{"one fails again", []string{"TestOnce", "TestAlways"}, []string{"TestAlways", "TestOnce"}, []string{"TestAlways"}},
		{"too many", []string{"TestOnce", "TestAlways", "TestSecond", "TestThird"}, nil, []string{"TestAlways", "TestOnce", "TestSecond", "TestThird"}},
		{"a panic", []string{"TestOnce", "TestPanic"}, nil, []string{"TestOnce", "TestPanic"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_ = os.Remove("failed")
			all := b.all(t.Context(), tc.tests, nil)
			b.again(t.Context(), all, nil)
			var again, bad []string
			for _, test := range slices.Sorted(maps.Keys(all)) {
				if all[test].again {
					again = append(again, test)
				}
				if all[test].verdict != passed {
					bad = append(bad, test)
				}
			}
			if !slices.Equal(again, tc.again) || !slices.Equal(bad, tc.bad) {
				t.Errorf("%q ran again, and %q failed, want %q and %q", again, bad, tc.again, tc.bad)
			}
			if r := all["TestOnce"]; !strings.Contains(r.text, "the first run fails") {
				t.Errorf("the report has lost what failed: %q", r.text)
			}
		})
	}
}
