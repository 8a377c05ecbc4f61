package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"xpyd/tools/process"
)

// front is a proxy that may be in front of xpyd.
type front struct {
	name     string // of its program
	debian   string // its package
	language string // of its block on the page
	listen   string // what the block says of its port, with %s for the address
	port     string // what stands there
	around   string // what the block needs to be a whole file: %[1]s is the block, %[2]s a directory
	args     []string
	versions []string // arguments that print the version
}

func fronts() []front {
	return []front{
		{name: "nginx", debian: "nginx-light", language: "nginx", listen: "listen %s;", port: "80", around: nginxAround,
			args: []string{"-p", "{dir}", "-e", "{dir}/error.log", "-c", "{file}"}, versions: []string{"-v"}},
		{name: "haproxy", debian: "haproxy", language: "haproxy", listen: "bind %s", port: ":80", around: "global\n    maxconn 1000\n\n%[1]s",
			args: []string{"-db", "-f", "{file}"}, versions: []string{"-v"}},
		{name: "caddy", debian: "caddy", language: "caddyfile", listen: "%s {\n", port: ":80", around: caddyAround,
			args: []string{"run", "--adapter", "caddyfile", "--config", "{file}"}, versions: []string{"version"}},
	}
}

const nginxAround = `daemon off;
worker_processes 1;
pid %[2]s/nginx.pid;
error_log %[2]s/error.log warn;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
%[1]s
}
`

const caddyAround = `{
	admin off
	auto_https off
}

%[1]s`

// block returns the page's block of that language.
func block(text, language string) (string, error) {
	m := regexp.MustCompile("(?s)\n```" + language + "\n(.*?)```\n").FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s has no block of %s", page, language)
	}
	return m[1], nil
}

// replace wants old once in text.
func replace(text, old, with string) (string, error) {
	if n := strings.Count(text, old); n != 1 {
		return "", fmt.Errorf("the block has %q %d times, want it once", old, n)
	}
	return strings.Replace(text, old, with, 1), nil
}

// configure returns the page's configuration with other addresses.
func (f front) configure(text, listen, xpyd, dir string) (string, error) {
	b, err := block(text, f.language)
	if err != nil {
		return "", err
	}
	to := listen
	if f.name == "caddy" {
		to = "http://" + listen // it takes an address alone for a host to get a certificate for
	}
	if b, err = replace(b, fmt.Sprintf(f.listen, f.port), fmt.Sprintf(f.listen, to)); err != nil {
		return "", err
	}
	if b, err = replace(b, "127.0.0.1:8080", xpyd); err != nil {
		return "", err
	}
	if !strings.Contains(f.around, "%[2]s") {
		return fmt.Sprintf(f.around, b), nil
	}
	return fmt.Sprintf(f.around, b, dir), nil
}

// start runs the proxy in front of xpyd, and returns its address.
func (f front) start(ctx context.Context, program, text, xpyd, parent string) (addr string, p *process.Process, err error) {
	dir := filepath.Join(parent, f.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", nil, err
	}
	if addr, err = process.FreePort(); err != nil {
		return "", nil, err
	}
	conf, err := f.configure(text, addr, xpyd, dir)
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(dir, "conf")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		return "", nil, err
	}
	fill := strings.NewReplacer("{dir}", dir, "{file}", file)
	var args []string
	for _, a := range f.args {
		args = append(args, fill.Replace(a))
	}
	p, err = process.Start(filepath.Join(dir, "output"), []string{"HOME=" + dir}, program, args...)
	if err != nil {
		return "", nil, err
	}
	if err := p.AwaitHTTP(ctx, "http://"+addr+"/readyz"); err != nil {
		p.Stop()
		return "", nil, err
	}
	return addr, p, nil
}

func (f front) version(ctx context.Context, program string) string {
	said, err := exec.CommandContext(ctx, program, f.versions...).CombinedOutput()
	number := regexp.MustCompile(`\d+\.\d+\.\d+`).Find(said)
	if err != nil || number == nil {
		return "of an unknown version"
	}
	return string(number)
}
