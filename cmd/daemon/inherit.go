package daemon

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"xpyd/cmd/config"
)

// These are the names of the two sockets, in FileDescriptorName= of a systemd socket unit and between a
// process and its successor.
const (
	dataSocket  = "data"
	adminSocket = "admin"
)

// firstInherited is the first descriptor after standard input, output and error.
const firstInherited = 3

// handoverEnv tells a successor what it inherits. Descriptor 3 is the pipe on which it reports. From 4
// on there is a listening socket for each NAME=ADDRESS of the comma-separated value. ADDRESS is the one
// in the predecessor's configuration. A version that does not know the variable refuses it, and so does
// not start.
const handoverEnv = config.EnvPrefix + "HANDOVER"

// Inheritance is what systemd or the predecessor gave a process at its start. The zero value is for a
// process that opens its own ports.
type Inheritance struct {
	sockets []inheritedSocket // those that are not taken
	report  *os.File          // goes to the predecessor; nil without one
}

type inheritedSocket struct {
	name string
	addr string // "" from systemd, which fits any address in the configuration
	file *os.File
}

// Inherit takes the descriptors out of the environment, so that neither they nor the
// variables reach a later child. An error is a config.UsageError.
func Inherit() (*Inheritance, error) {
	h := &Inheritance{}
	sockets, handed := os.LookupEnv(handoverEnv)
	var err error
	if handed {
		err = h.fromPredecessor(sockets)
	} else {
		err = h.fromSystemd(os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES"))
	}
	for _, name := range []string{handoverEnv, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name)
	}
	if err != nil {
		h.Close()
		return nil, config.UsageError{Err: err}
	}
	return h, nil
}

func (h *Inheritance) fromPredecessor(sockets string) error {
	unix.CloseOnExec(firstInherited)
	h.report = os.NewFile(firstInherited, "report")
	for i, s := range strings.Split(sockets, ",") {
		name, addr, _ := strings.Cut(s, "=")
		if err := h.add(firstInherited+1+i, name, addr); err != nil {
			return fmt.Errorf("%s %q: %w", handoverEnv, sockets, err)
		}
	}
	return nil
}

// fromSystemd reads the protocol of sd_listen_fds(3). A single socket may have any name, because the
// default of FileDescriptorName= is the unit's name.
func (h *Inheritance) fromSystemd(pid, fds, names string) error {
	if pid != strconv.Itoa(os.Getpid()) {
		return nil // meant for another process
	}
	n, err := strconv.Atoi(fds)
	if err != nil || n < 0 {
		return fmt.Errorf("LISTEN_FDS %q: want a number of sockets", fds)
	}
	named := strings.Split(names, ":")
	for i := range n {
		name := ""
		if i < len(named) {
			name = named[i]
		}
		if n == 1 && name != adminSocket {
			name = dataSocket
		}
		if err := h.add(firstInherited+i, name, ""); err != nil {
			return fmt.Errorf("LISTEN_FDS %s: %w", fds, err)
		}
	}
	return nil
}

// add keeps a descriptor as the socket of that name.
func (h *Inheritance) add(fd int, name, addr string) error {
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), name)
	for _, s := range h.sockets {
		if s.name == name {
			return fmt.Errorf("two sockets are named %q", name)
		}
	}
	h.sockets = append(h.sockets, inheritedSocket{name, addr, file})
	if name != dataSocket && name != adminSocket {
		return fmt.Errorf("socket %q: want the names %s and %s (FileDescriptorName=)", name, dataSocket, adminSocket)
	}
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || listening == 0 {
		return fmt.Errorf("descriptor %d (%s) is no listening socket (Accept=no, ListenStream=)", fd, name)
	}
	return nil
}

// take hands out the socket of that name if it is for addr.
func (h *Inheritance) take(name, addr string) (s inheritedSocket, ok bool) {
	i := slices.IndexFunc(h.sockets, func(s inheritedSocket) bool {
		return s.name == name && (s.addr == "" || s.addr == addr)
	})
	if i < 0 {
		return s, false
	}
	s = h.sockets[i]
	h.sockets = slices.Delete(h.sockets, i, i+1)
	return s, true
}

// Handed reports that a predecessor hands its ports over. It has read the same configuration.
func (h *Inheritance) Handed() bool { return h.report != nil }

// Close closes what was not taken.
func (h *Inheritance) Close() {
	for _, s := range h.sockets {
		_ = s.file.Close()
	}
	h.sockets = nil
	if h.report != nil {
		_ = h.report.Close()
		h.report = nil
	}
}
