package sim

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// rankHeader is how a client of vLLM picks a data-parallel rank.
const rankHeader = "X-data-parallel-rank"

// Ranks is one vLLM server with data-parallel ranks: one port before engines that share nothing. Each
// rank has an engine id, a cache and a ledger of its own, and only it can read and free its blocks.
type Ranks struct {
	ln      net.Listener
	http    *http.Server
	engines []*url.URL
	next    atomic.Uint64
}

// StartRanks opens a port on loopback before the engines with these URLs, of which the n-th is rank n. The
// engines belong to the caller.
func StartRanks(engines ...string) (*Ranks, error) {
	var targets []*url.URL
	for _, e := range engines {
		u, err := url.Parse(e)
		if err != nil {
			return nil, fmt.Errorf("start ranks: %w", err)
		}
		targets = append(targets, u)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start ranks: %w", err)
	}
	r := &Ranks{ln: ln, engines: targets}
	r.http = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.http.Serve(ln) }()
	return r, nil
}

// URL is the base URL of the server, without a trailing slash.
func (r *Ranks) URL() string { return "http://" + r.ln.Addr().String() }

// Close ends the port, and breaks off what comes over it.
func (r *Ranks) Close() error { return r.http.Close() }

// ServeHTTP gives a request to the rank that it names. As in vLLM, what is no number does not count, and
// without a rank the server picks one.
func (r *Ranks) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/metrics" {
		r.metrics(w)
		return
	}
	rank, err := strconv.Atoi(req.Header.Get(rankHeader))
	switch {
	case err != nil:
		rank = int(r.next.Add(1) % uint64(len(r.engines)))
	case rank < 0 || rank >= len(r.engines):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"data_parallel_rank %d is out of range [0, %d).","type":"BadRequestError","param":null,"code":400}}`, rank, len(r.engines))
		return
	}
	front := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(r.engines[rank]) },
	}
	front.ServeHTTP(w, req)
}

// metrics puts the pages of the ranks together, each under its number in the label engine.
func (r *Ranks) metrics(w http.ResponseWriter) {
	for i, e := range r.engines {
		resp, err := http.Get(e.String() + "/metrics")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		page, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		for line := range bytes.Lines(page) {
			text := string(line)
			if own := strings.Contains(text, `engine="0"`); i > 0 && !own {
				continue // comments, and what is of the whole process
			}
			_, _ = io.WriteString(w, strings.Replace(text, `engine="0"`, `engine="`+strconv.Itoa(i)+`"`, 1))
		}
	}
}
