package heads_test

import (
	"testing"

	"xpyd/intake/heads"
)

func TestTraceID(t *testing.T) {
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for _, c := range []struct{ name, fields, want string }{
		{"recorded", "User-Agent: x\r\nTraceparent: 00-" + id + "-" + parent + "-01\r\nTracestate: a=b\r\n", id},
		{"first line", "Traceparent: 00-" + id + "-" + parent + "-01\r\n", id},
		{"more flags", "Traceparent: 00-" + id + "-" + parent + "-03\r\n", id},
		{"a later version with more", "Traceparent: 01-" + id + "-" + parent + "-01-more\r\n", id},
		{"not recorded", "Traceparent: 00-" + id + "-" + parent + "-00\r\n", ""},
		{"other flags alone", "Traceparent: 00-" + id + "-" + parent + "-02\r\n", ""},
		{"none", "User-Agent: x\r\n", ""},
		{"nothing", "", ""},
		{"in another field", "User-Agent: Traceparent: 00-" + id + "-" + parent + "-01\r\n", ""},
		{"this version with more", "Traceparent: 00-" + id + "-" + parent + "-01-more\r\n", ""},
		{"no version", "Traceparent: ff-" + id + "-" + parent + "-01\r\n", ""},
		{"zero", "Traceparent: 00-00000000000000000000000000000000-" + parent + "-01\r\n", ""},
		{"upper case", "Traceparent: 00-4BF92F3577B34DA6A3CE929D0E0E4736-" + parent + "-01\r\n", ""},
		{"short", "Traceparent: 00-" + id + "\r\n", ""},
		{"no dashes", "Traceparent: 00_" + id + "_" + parent + "_01\r\n", ""},
	} {
		if got := heads.TraceID([]byte(c.fields)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	none := []byte("User-Agent: x\r\nTracestate: a=b\r\n")
	if n := testing.AllocsPerRun(100, func() { heads.TraceID(none) }); n != 0 {
		t.Errorf("%v allocations without a traceparent, want 0", n)
	}
}
