package versus

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"xpyd/tools/process"
)

const nginxConfig = `daemon off;
worker_processes %[1]d;
worker_rlimit_nofile %[2]d;
pid %[3]s/nginx.pid;
error_log %[3]s/error.log warn;
events { worker_connections %[2]d; }
http {
	access_log %[3]s/access.log;
	client_body_temp_path %[3]s/body;
	proxy_temp_path %[3]s/proxy;
	fastcgi_temp_path %[3]s/fastcgi;
	uwsgi_temp_path %[3]s/uwsgi;
	scgi_temp_path %[3]s/scgi;
	client_max_body_size 64m;
	keepalive_requests 100000000;
	upstream decode {
		%[4]s
		keepalive 1024;
		keepalive_requests 100000000;
	}
	server {
		listen %[5]s backlog=4096;
		location / {
			proxy_pass http://decode;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
			%[6]s
			proxy_read_timeout 1h;
		}
	}
}
`

// nginx is the yardstick. It has one leg, straight to the decode engines. The cheaper of its two
// forms counts, and which one that is depends on the body: one write of a large body costs less than
// many, but it begins later.
func nginx(executable string) []contender {
	return []contender{
		nginxForm(nameNginx, executable, "proxy_request_buffering off;"),
		nginxForm(nameBuffered, executable, "proxy_request_buffering on; client_body_buffer_size 8m;"), // above the largest body: no file
	}
}

func nginxForm(name, executable, body string) contender {
	return contender{name: name, start: func(ctx context.Context, to target) (*running, error) {
		addr, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		var servers strings.Builder
		for _, d := range to.decode {
			servers.WriteString("server " + d + ";\n")
		}
		conf, err := configure(to, "nginx.conf", fmt.Sprintf(nginxConfig, to.cores, fileLimit(), to.dir, servers.String(), addr, body))
		if err != nil {
			return nil, err
		}
		return startPlain(ctx, to, addr, executable, "-p", to.dir, "-e", filepath.Join(to.dir, "error.log"), "-c", conf)
	}}
}

const haproxyConfig = `global
	nbthread %[1]d
	maxconn %[2]d
	log stdout format raw local0
defaults
	mode http
	log global
	option httplog
	option http-keep-alive
	option http-no-delay
	http-reuse always
	maxconn %[2]d
	timeout connect 1s
	timeout client 1h
	timeout server 1h
frontend in
	bind %[3]s
	default_backend decode
backend decode
	balance roundrobin
%[4]s`

// haproxy has one leg, like nginx.
func haproxy(executable string) contender {
	return contender{name: nameHAProxy, start: func(ctx context.Context, to target) (*running, error) {
		addr, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		var servers strings.Builder
		for i, d := range to.decode {
			fmt.Fprintf(&servers, "\tserver d%d %s\n", i, d)
		}
		conf, err := configure(to, "haproxy.cfg", fmt.Sprintf(haproxyConfig, to.cores, (fileLimit()-100)/2, addr, servers.String()))
		if err != nil {
			return nil, err
		}
		return startPlain(ctx, to, addr, executable, "-db", "-f", conf)
	}}
}

// vllmRouter takes both legs, like xpyd.
func vllmRouter(executable string) contender {
	return contender{name: nameRouter, legs: 2, start: func(ctx context.Context, to target) (*running, error) {
		p, addr, err := process.StartVLLMRouter(ctx, to.dir, to.cores, executable, "round_robin", process.Pools{Prefill: to.prefill, Decode: to.decode})
		if err != nil {
			return nil, err
		}
		return &running{addr: addr, Process: p}, nil
	}}
}

func configure(to target, name, text string) (path string, err error) {
	path = filepath.Join(to.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("configure: %w", err)
	}
	return path, nil
}

// startPlain starts a proxy on a port that it was given.
func startPlain(ctx context.Context, to target, addr, executable string, args ...string) (*running, error) {
	p, err := process.StartPlain(ctx, to.dir, addr, nil, executable, args...)
	if err != nil {
		return nil, err
	}
	return &running{addr: addr, Process: p}, nil
}
