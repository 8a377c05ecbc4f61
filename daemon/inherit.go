package daemon

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"xpyd/config"
)

// Names of the two sockets: in FileDescriptorName= of a systemd socket unit, and
// between a process and its successor.
const (
	dataSocket  = "data"
	adminSocket = "admin"
)

// firstInherited is the first descriptor after standard input, output and error.
const firstInherited = 3

// handoverEnv tells a successor what it inherits: descriptor 3 is the pipe on which it
// reports, and from 4 on there is a listening socket for each NAME=ADDRESS of the
// comma-separated value. ADDRESS is as the predecessor's configuration has it. A
// version that knows nothing of this refuses the variable, and so does not start.
const handoverEnv = config.EnvPrefix + "HANDOVER"

// Inheritance is what a process was started with by systemd or by its predecessor. The
// zero value is that of a process that opens its own ports.
type Inheritance struct {
	sockets []inheritedSocket // not taken yet
	report  *os.File          // to the predecessor; nil without one
}

type inheritedSocket struct {
	name string
	addr string // "" from systemd: whatever the configuration says
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

// fromSystemd reads the protocol of sd_listen_fds(3). A single socket may have any
// name: the default of FileDescriptorName= is the unit's.
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

// Handed: a process before this one hands its ports over, and has read the same configuration.
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
