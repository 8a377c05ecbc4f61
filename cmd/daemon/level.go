package daemon

import (
	"fmt"
	"sync"

	"github.com/rs/zerolog"

	"xpyd/cmd/config"
)

// logLevel is the level of the process's log. It is zerolog's own, which holds for all loggers, so only a
// process that serves has one.
type logLevel struct {
	mu  sync.Mutex
	now string
}

// levels are those that log.level may have.
func levels() []zerolog.Level {
	return []zerolog.Level{zerolog.DebugLevel, zerolog.InfoLevel, zerolog.WarnLevel, zerolog.ErrorLevel}
}

func (l *logLevel) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// set changes the level at once.
func (l *logLevel) set(name string) error {
	name = config.LogLevel(name)
	for _, level := range levels() {
		if level.String() == name {
			l.mu.Lock()
			defer l.mu.Unlock()
			zerolog.SetGlobalLevel(level)
			l.now = name
			return nil
		}
	}
	return fmt.Errorf("level: %q must be debug, info, warn or error", name)
}
