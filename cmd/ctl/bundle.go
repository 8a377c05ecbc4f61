package ctl

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// bundled are the pages of a support bundle, by the names of their files. None holds a prompt, a completion, a key or a token.
func bundled() map[string]string {
	return map[string]string{
		"readyz.txt": "/readyz", "config.json": "/config", "pools.json": "/pools", "backends.json": "/backends", "status.json": "/status",
		"events.json": "/events", "failures.json": "/failures", "advice.json": "/advice", "metrics.txt": "/metrics",
	}
}

// Bundle writes what helps others to understand a running process, as a compressed tar. own is what is known of this program. A
// page that cannot be had is replaced by why; it fails if no page can be.
func (c *Client) Bundle(ctx context.Context, w io.Writer, own any) error {
	packed := gzip.NewWriter(w)
	t, now := tar.NewWriter(packed), time.Now().UTC()
	put := func(name string, text []byte) error {
		err := t.WriteHeader(&tar.Header{Name: "xpyd-support/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: now})
		if err == nil {
			_, err = t.Write(text)
		}
		return err
	}
	about, err := json.MarshalIndent(map[string]any{"made": now.Format(time.RFC3339), "admin": c.base, "program": own}, "", "  ")
	if err == nil {
		err = put("about.json", append(about, '\n'))
	}
	if err != nil {
		return err
	}
	had := 0
	var last error
	for name, path := range bundled() {
		status, text, err := c.exchange(ctx, http.MethodGet, path, nil)
		switch {
		case err == nil && (status == http.StatusOK || path == "/readyz"):
			had++
		case err == nil:
			err = refusal(status, http.MethodGet, path, text)
			fallthrough
		default:
			name, text, last = name+".error", fmt.Appendln(nil, err), err
		}
		if err := put(name, text); err != nil {
			return err
		}
	}
	if had == 0 {
		return last
	}
	return errors.Join(t.Close(), packed.Close())
}
