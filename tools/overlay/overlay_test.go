package overlay

import "testing"

func TestPlantWantsItsPlaceOnce(t *testing.T) {
	for _, tc := range []struct{ source, want string }{
		{"a = 1\nb = 2\n", "a = 3\nb = 2\n"},
		{"b = 2\n", ""},
		{"a = 1\na = 1\n", ""},
	} {
		got, err := Plant([]byte(tc.source), "a = 1", "a = 3")
		if string(got) != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%q: %q, %v", tc.source, got, err)
		}
	}
}
