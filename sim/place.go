package sim

import (
	"net/netip"
	"syscall"
)

// places are ports that a dead engine keeps for its next incarnation. The kernel refuses
// connections to them, and gives them to no connection that leaves this machine.
type places []int

// keep takes the port of an address that has no listener any more. Without it another process may
// have the port when the engine comes back. That is rare and no fault, so keep reports no errors.
func (p *places) keep(address string) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Is4() {
		return
	}
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return
	}
	// The next listener may share the port with this socket, because this one does not listen.
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	if err != nil {
		_ = syscall.Close(fd)
		return
	}
	*p = append(*p, fd)
}

// leave gives the ports up.
func (p *places) leave() {
	for _, fd := range *p {
		_ = syscall.Close(fd)
	}
	*p = nil
}
