package sim

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
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

	boot *http.Server // the bootstrap server of all ranks; nil without JoinBootstraps

	mu    sync.Mutex
	pages [][]byte // of metrics, the last that each rank gave
}

// StartRanks is ServeRanks on a free port of loopback.
func StartRanks(engines ...string) (*Ranks, error) { return ServeRanks("127.0.0.1:0", engines...) }

// ServeRanks opens a port before the engines with these URLs, of which the n-th is rank n. The engines
// belong to the caller.
func ServeRanks(listen string, engines ...string) (*Ranks, error) {
	var targets []*url.URL
	for _, e := range engines {
		u, err := url.Parse(e)
		if err != nil {
			return nil, fmt.Errorf("start ranks: %w", err)
		}
		targets = append(targets, u)
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("start ranks: %w", err)
	}
	r := &Ranks{ln: ln, engines: targets, pages: make([][]byte, len(targets))}
	r.http = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.http.Serve(ln) }()
	return r, nil
}

// URL is the base URL of the server, without a trailing slash.
func (r *Ranks) URL() string { return "http://" + r.ln.Addr().String() }

// Close ends the port, and breaks off what comes over it.
func (r *Ranks) Close() error {
	if r.boot != nil {
		_ = r.boot.Close()
	}
	return r.http.Close()
}

// ServeHTTP gives a request to the rank that it names. As in vLLM, what is no number does not count, and
// without a rank the server picks one.
func (r *Ranks) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/metrics":
		r.metrics(w)
		return
	case "/health":
		r.health(w)
		return
	case "/server_info": // SGLang's
		page, _ := ask(r.engines[0], "/server_info")
		_, _ = w.Write(bytes.Replace(page, []byte(`"dp_size":1`), fmt.Appendf(nil, `"dp_size":%d`, len(r.engines)), 1))
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
	// Go's server otherwise closes what is left of the body with the first byte of the answer, and its client then
	// breaks the answer off if it has not noticed the body's end.
	_ = http.NewResponseController(w).EnableFullDuplex()
	front := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(r.engines[rank]) },
		// What an engine breaks off is broken off here.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	front.ServeHTTP(w, req)
}

// askTime bounds what a server asks one of its ranks.
const askTime = time.Second

// health is that of the whole server, whatever rank the request names. As in vLLM it fails if the process of
// one rank has died, and does not notice one that is stuck.
func (r *Ranks) health(w http.ResponseWriter) {
	for _, e := range r.engines {
		conn, err := net.DialTimeout("tcp", e.Host, askTime)
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_ = conn.Close()
	}
}

// metrics puts the pages of the ranks together, each under its number in the label engine. A rank that says
// nothing has its last figures. vLLM 0.32 has several processes answer for such a server. Its page then has a
// gauge of the load only after that has been set for the first time, which is with the rank's first request.
// Counters are there from the start.
func (r *Ranks) metrics(w http.ResponseWriter) {
	for i, e := range r.engines {
		page := r.page(i, e)
		if r.sglangLoad(w, i, page) {
			continue
		}
		fresh := len(r.engines) > 1 && unused.Match(page)
		for line := range bytes.Lines(page) {
			text := string(line)
			own := strings.Contains(text, `engine="0"`)
			switch {
			case i > 0 && !own:
				continue // comments, and what is of the whole process
			case fresh && own && loads.MatchString(text):
				continue
			}
			_, _ = io.WriteString(w, strings.Replace(text, `engine="0"`, `engine="`+strconv.Itoa(i)+`"`, 1))
		}
	}
}

// sglangLoad writes the load of a rank if it is one of SGLang: each gauge with its rank, and the counters, which are of the
// whole server, once.
func (r *Ranks) sglangLoad(w io.Writer, rank int, page []byte) bool {
	if !bytes.Contains(page, []byte("\nsglang:")) {
		return false
	}
	for line := range strings.Lines(string(page)) {
		switch gauge := strings.HasPrefix(line, "sglang:") && !strings.Contains(line, "is_streaming="); {
		case gauge:
			_, _ = io.WriteString(w, strings.Replace(line, "{", `{dp_rank="`+strconv.Itoa(rank)+`",`, 1))
		case rank == 0:
			_, _ = io.WriteString(w, line)
		}
	}
	return true
}

var (
	unused = regexp.MustCompile(`(?m)^vllm:prompt_tokens_total\{.*\} 0\.0$`)
	loads  = regexp.MustCompile(`^vllm:(num_requests_(running|waiting|waiting_by_reason)|kv_cache_usage_perc)\{`)
)

// page is the last page of metrics of the rank.
func (r *Ranks) page(rank int, e *url.URL) []byte {
	page, err := ask(e, "/metrics")
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.pages[rank] = page
	}
	return r.pages[rank]
}

// ask gets a page of an engine.
func ask(e *url.URL, path string) ([]byte, error) {
	resp, err := (&http.Client{Timeout: askTime}).Get(e.String() + path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}
