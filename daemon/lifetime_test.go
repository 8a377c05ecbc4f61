package daemon

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"xpyd/config"
)

// While the read of a configuration hangs, the process hears the other signals. After a HUP it reads
// the configuration once more.
func TestSignalsWhileAReloadHangs(t *testing.T) {
	cfg := config.Default()
	cfg.Listen, cfg.Admin, cfg.Router.Decode = "127.0.0.1:0", "", []string{"http://127.0.0.1:1"}
	p, err := Start(cfg, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	reads, results := make(chan struct{}), make(chan error)
	load := func(ctx context.Context) (config.Config, error) {
		reads <- struct{}{}
		select {
		case err := <-results:
			return cfg, err
		case <-ctx.Done():
			return cfg, ctx.Err()
		}
	}
	hup, usr2 := make(chan os.Signal), make(chan os.Signal)
	l := lifetime{Proxy: p, cfg: cfg, load: load, exe: "/nonexistent/xpyd", log: zerolog.Nop(), hup: hup, usr2: usr2}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := l.await(ctx)
		ended <- err
	}()
	hup <- syscall.SIGHUP
	<-reads
	hup <- syscall.SIGHUP // heard, and remembered
	hup <- syscall.SIGHUP
	usr2 <- syscall.SIGUSR2
	results <- errors.New("not yet")
	<-reads
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
