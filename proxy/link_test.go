package proxy_test

import (
	"math"
	"net"
	"net/url"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// These are links that lose segments or are dead, without privileges. A socket's own filter drops
// what arrives before TCP sees it, so that the other end meets silence and its own timers, as with
// a pulled cable. Accepted connections have their listener's filter.

// losing drops a random share of all segments. 1 is a dead link.
func losing(share float64) []unix.SockFilter {
	if share == 1 {
		return []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	}
	return append(chance(share), passOrDrop()...)
}

// losingSYN drops a random share of the segments that open a connection.
func losingSYN(share float64) []unix.SockFilter {
	const flags, syn = 13, 2 // of the TCP header
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jf: 2}, // no SYN: to the pass
	}
	return append(append(prog, chance(share)...), passOrDrop()...)
}

// chance goes on to the pass, or jumps over it with probability p.
func chance(p float64) []unix.SockFilter {
	const adOff, adRandom = 0xfffff000, 56 // SKF_AD_OFF, SKF_AD_RANDOM
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: adOff + adRandom},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: uint32(p * math.MaxUint32), Jf: 1},
	}
}

func passOrDrop() []unix.SockFilter {
	return []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32}, {Code: unix.BPF_RET | unix.BPF_K}}
}

// ends picks sockets of this process: listening ones, or connections by their ports, where 0 is
// any.
type ends struct {
	listening   bool
	local, peer int
}

// sockets lists the descriptors that match, including those of all parts of the rig and of the
// test's clients.
func sockets(t *testing.T, want ends) (fds []int) {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		fd, _ := strconv.Atoi(n.Name())
		local, err := unix.Getsockname(fd)
		if err != nil || want.local != 0 && portOf(local) != want.local {
			continue
		}
		listening, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if want.listening != (listening == 1) {
			continue
		}
		if !want.listening {
			peer, err := unix.Getpeername(fd)
			if err != nil || want.peer != 0 && portOf(peer) != want.peer {
				continue
			}
		}
		fds = append(fds, fd)
	}
	return fds
}

func portOf(a unix.Sockaddr) int {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	return -1
}

// port is that of a base URL.
func port(t *testing.T, base string) int {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	n, err := net.LookupPort("tcp", u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// filter puts a filter on each of the sockets.
func filter(t *testing.T, fds []int, prog []unix.SockFilter) {
	t.Helper()
	if len(fds) == 0 {
		t.Fatal("no such socket")
	}
	for _, fd := range fds {
		fp := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &fp); err != nil {
			t.Fatalf("attach filter to descriptor %d: %v", fd, err)
		}
	}
}

// cut makes the links between the proxy, whose descriptors come first, and its peers
// dead, and has the proxy's kernel give up in about 2 s in place of 30.
func cut(t *testing.T, proxys, peers []int) {
	t.Helper()
	for _, fd := range proxys {
		for opt, v := range map[int]int{unix.TCP_USER_TIMEOUT: 1000, unix.TCP_KEEPIDLE: 1, unix.TCP_KEEPINTVL: 1, unix.TCP_KEEPCNT: 1} {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, opt, v); err != nil {
				t.Fatalf("socket option %d: %v", opt, err)
			}
		}
	}
	filter(t, peers, losing(1))
	filter(t, proxys, losing(1))
}
