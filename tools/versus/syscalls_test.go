package versus

import (
	"strings"
	"testing"
)

func TestCallsAreReadFromPerf(t *testing.T) {
	counts, err := parseCalls("# started on Sat Nov 21\n\n" +
		"918;;raw_syscalls:sys_enter;1;100.00;;\n<not counted>;;syscalls:sys_enter_poll;0;100.00;;\n" +
		"385;;syscalls:sys_enter_read;1;100.00;;\n100;;syscalls:sys_enter_write;1;100.00;;\n73;;context-switches;1;100.00;;\n")
	if err != nil {
		t.Fatal(err)
	}
	c := Calls{Contender: nameXpyd, Unit: "a request", Per: map[string]float64{}}
	for name, n := range counts {
		c.Per[name] = n / 100
	}
	if want := "xpyd: 9.18 system calls a request (read 3.85, write 1.00), 0.73 context switches"; c.String() != want {
		t.Errorf("%s\nwant %s", c, want)
	}
	if _, err := parseCalls("Error: no permission\n"); err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("without counts: error %v", err)
	}
	// The document gets a sentence.
	for text, want := range map[string]string{
		"# started on Sat Nov 21\n\n<not counted>;;raw_syscalls:sys_enter;0;100.00;;\n<not counted>;;context-switches;0;100.00;;\n": "perf saw none of the process's threads run while it watched",
		"# started on Sat Nov 21\n\n<not supported>;;raw_syscalls:sys_enter;0;100.00;;\n":                                           "this kernel has none of the events",
		"": "perf wrote nothing",
	} {
		if _, err := parseCalls(text); err == nil || err.Error() != "system calls are not counted: "+want {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
