package daemon

import (
	"testing"
)

// With LISTEN_PID of another process, the variables were not meant for this one.
func TestSocketsOfAnotherProcessAreLeftAlone(t *testing.T) {
	var h Inheritance
	if err := h.fromSystemd("1", "2", "data:admin"); err != nil || len(h.sockets) != 0 {
		t.Errorf("%v, %d sockets", err, len(h.sockets))
	}
}
