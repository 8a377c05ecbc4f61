package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// worker is what a bootstrap server says of one data-parallel rank: the engine, and the addresses of
// its workers by tensor-parallel and pipeline-parallel rank.
type worker struct {
	EngineID string                       `json:"engine_id"`
	Addr     map[string]map[string]string `json:"worker_addr"`
}

// serveBootstrap is Mooncake's bootstrap server beside a prefill engine. Decode engines and the proxy
// ask it who the engine is.
func (c *core) serveBootstrap(l net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /query", func(w http.ResponseWriter, _ *http.Request) {
		c.gate.wait()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]worker{ // a client that has gone misses it
			"0": {EngineID: c.id, Addr: map[string]map[string]string{"0": {"0": "tcp://" + c.side.Addr().String()}}},
		})
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	c.spawn(func() { _ = server.Serve(l) }) // ends with the listener
	c.spawn(func() {
		<-c.life.Done()
		_ = server.Close()
	})
}

// JoinBootstraps opens the bootstrap server of a prefill server with ranks, and returns its port. It says of each rank what
// the server at the n-th port says of its only one. Call it before others use r.
func (r *Ranks) JoinBootstraps(listen string, ports ...int) (port int, err error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return 0, fmt.Errorf("join bootstrap servers: %w", err)
	}
	ask := &http.Client{Timeout: askTime, Transport: &http.Transport{DisableKeepAlives: true}} // who counts connections finds none of these
	mux := http.NewServeMux()
	mux.HandleFunc("GET /query", func(w http.ResponseWriter, _ *http.Request) {
		all := map[string]json.RawMessage{}
		for rank, port := range ports { // one that has died has not registered
			var own map[string]json.RawMessage
			resp, err := ask.Get("http://127.0.0.1:" + strconv.Itoa(port) + "/query")
			if err != nil {
				continue
			}
			if json.NewDecoder(resp.Body).Decode(&own) == nil {
				all[strconv.Itoa(rank)] = own["0"]
			}
			_ = resp.Body.Close()
		}
		_ = json.NewEncoder(w).Encode(all)
	})
	r.boot = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = r.boot.Serve(l) }()
	_, port = splitPort(l.Addr())
	return port, nil
}

// locate returns the side channel of h's prefill engine.
func (c *core) locate(h handle) (peerKey, error) {
	if h.bootstrap == "" {
		return h.peer, nil
	}
	workers, err := c.askBootstrap(h.bootstrap)
	if err != nil {
		return peerKey{}, err
	}
	for _, w := range workers {
		if w.EngineID != h.peer.engine {
			continue
		}
		host, port, err := net.SplitHostPort(strings.TrimPrefix(w.Addr["0"]["0"], "tcp://"))
		if err != nil {
			return peerKey{}, fmt.Errorf("bootstrap server %s: %w", h.bootstrap, err)
		}
		key := peerKey{host: host, engine: w.EngineID}
		_, err = fmt.Sscan(port, &key.port)
		return key, err
	}
	return peerKey{}, fmt.Errorf("remote engine_id %s not found from bootstrap server %s", h.peer.engine, h.bootstrap)
}

// bootstrapTries is how often a bootstrap server is asked, 0.1 s apart.
const bootstrapTries = 3

func (c *core) askBootstrap(base string) (workers map[string]worker, err error) {
	for try := range bootstrapTries {
		if try > 0 && !c.pause(c.life, 100*time.Millisecond) {
			break
		}
		var body []byte
		if body, err = c.fetchBootstrap(base); err == nil {
			return workers, json.Unmarshal(body, &workers)
		}
	}
	return nil, err
}

func (c *core) fetchBootstrap(base string) ([]byte, error) {
	req, err := http.NewRequestWithContext(c.life, http.MethodGet, base+"/query", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := (&http.Client{Timeout: dialPatience}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}
