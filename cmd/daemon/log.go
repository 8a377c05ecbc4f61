package daemon

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"

	"xpyd/cmd/config"
)

// openLog makes the log at the configured level.
func openLog(cfg config.Log, w io.Writer) (zerolog.Logger, *logBuffer, *logLevel, error) {
	level := &logLevel{}
	if err := level.set(cfg.Level); err != nil {
		return zerolog.Nop(), nil, nil, config.UsageError{Err: fmt.Errorf("config: log.%w", err)}
	}
	log, lines := newLogger(cfg, w)
	return log, lines, level, nil
}

// newLogger makes the log, for all levels that logLevel lets through. Call its flush before the process
// ends.
func newLogger(cfg config.Log, w io.Writer) (zerolog.Logger, *logBuffer) {
	console := cfg.Format == "console"
	after := cfg.Flush
	if console {
		after = 0 // a person may be watching
	}
	lines := newLogBuffer(w, after, console)
	var out io.Writer = lines
	if console {
		out = consoleWriter(lines, !isTerminal(w))
	}
	return zerolog.New(out).Level(zerolog.DebugLevel).With().Timestamp().Logger(), lines
}

// consoleWriter writes lines for people.
func consoleWriter(w io.Writer, plain bool) io.Writer {
	return zerolog.ConsoleWriter{Out: w, TimeFormat: time.RFC3339, NoColor: plain}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
