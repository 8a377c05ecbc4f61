package cost

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
)

// terminate ends TLS before a plain engine until ctx ends, in the process of the engines.
func terminate(ctx context.Context, cert, key, engine string) (addr string, err error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return "", fmt.Errorf("load the certificate: %w", err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return "", fmt.Errorf("listen with TLS: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go join(conn, engine)
		}
	}()
	return ln.Addr().String(), nil
}

// join copies both ways until one side ends.
func join(client net.Conn, engine string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", engine)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
