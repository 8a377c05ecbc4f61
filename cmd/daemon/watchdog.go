package daemon

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/rs/zerolog"
)

// watchdogTime is how long systemd waits for a sign of life (WatchdogSec=) before it restarts the
// process. 0 means that it waits for none. Only the time stays in the environment, because a successor
// has another process id.
func watchdogTime() time.Duration {
	pid, named := os.LookupEnv("WATCHDOG_PID")
	_ = os.Unsetenv("WATCHDOG_PID")
	if named && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || us <= 0 {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// startWatchdog gives systemd a sign of life four times in each limit, as long as turns returns no
// error. So a hand-over, which costs one sign at most, leaves time enough. The watchdog ends before the
// returned function does.
func startWatchdog(limit time.Duration, turns func(context.Context) error, log zerolog.Logger) (stop func()) {
	if limit <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(limit / 4)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			signOfLife(ctx, limit/4, turns, log)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// signOfLife asks turns for at most patience.
func signOfLife(ctx context.Context, patience time.Duration, turns func(context.Context) error, log zerolog.Logger) {
	asked, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := turns(asked)
	switch {
	case err == nil:
		notify("WATCHDOG=1")
	case ctx.Err() == nil:
		log.Error().Err(err).Dur("waited_ms", patience).Msg("no sign of life for systemd's watchdog")
	}
}
