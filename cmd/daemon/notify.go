package daemon

import (
	"net"
	"os"
	"strings"
	"time"
)

// These are how long a message waits where systemd's socket is full, because it has stopped reading. The process
// must serve, reload and end without it.
const (
	notifyTime = 5 * time.Second
	// newsTime is for what systemd must not miss: that the process is ready, and which one is the main process.
	newsTime = 30 * time.Second
)

// notify tells systemd (Type=notify) about the state. Without systemd it does nothing.
func notify(state string) { notifyWithin(notifyTime, state) }

func notifyWithin(limit time.Duration, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(limit))
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}
