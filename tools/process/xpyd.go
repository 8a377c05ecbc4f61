package process

import (
	"context"
	"path/filepath"
	"strings"
)

// Pools are host:port of engines by role.
type Pools struct {
	Prefill []string `json:"prefill"`
	Decode  []string `json:"decode"`
}

// Xpyd is a build of it that serves.
type Xpyd struct {
	*Process
	Addr  string // host:port
	Admin string // host:port of the admin port
}

// StartXpyd runs xpyd serve in front of engines, on free ports, with flags on top and its
// log in dir, and waits until it is ready.
func StartXpyd(ctx context.Context, dir string, env []string, executable string, to Pools, flags ...string) (*Xpyd, error) {
	args := []string{"--decode", strings.Join(urls(to.Decode), ",")}
	if len(to.Prefill) > 0 {
		args = append(args, "--prefill", strings.Join(urls(to.Prefill), ","))
	}
	return Serve(ctx, filepath.Join(dir, "xpyd.log"), env, executable, append(args, flags...)...)
}

// Serve runs xpyd serve with flags, on free ports, with its log in output, and waits until
// it is ready.
func Serve(ctx context.Context, output string, env []string, executable string, flags ...string) (*Xpyd, error) {
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, flags...)
	var serving struct{ Listen, Admin string }
	p, err := StartTelling(ctx, output, env, `"message":"serving"`, &serving, executable, args...)
	if err != nil {
		return nil, err
	}
	if err := p.AwaitHTTP(ctx, "http://"+serving.Admin+"/readyz"); err != nil {
		p.Stop()
		return nil, err
	}
	return &Xpyd{Process: p, Addr: serving.Listen, Admin: serving.Admin}, nil
}

func urls(addrs []string) []string {
	all := make([]string, len(addrs))
	for i, a := range addrs {
		all[i] = "http://" + a
	}
	return all
}
