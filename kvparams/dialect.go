package kvparams

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// Dialect is how one KV connector speaks: what the two legs of a completion carry, and what comes
// back. It has no state and is safe for concurrent use. Each dialect has its own file and its row in
// dialects. A dialect whose decode leg names a prefill engine that has not answered is a Pairing too.
type Dialect interface {
	Name() string
	// Concurrent says that both legs are sent at once, because decode needs nothing from the
	// prefill answer. Then decode waits for the prefill engine to send the KV.
	Concurrent() bool
	// HandleInAnswer says that the prefill answer holds the handle that decode needs.
	HandleInAnswer() bool
	// DecodeOnlySafe says that decode serves a request without KV parameters, and does not wait for
	// KV that never comes.
	DecodeOnlySafe() bool
	Reclaim() Reclaim
	// Experimental says that the connector was only read in the engine's source, and never run.
	Experimental() bool
	// EngineConfig is the option of `vllm serve` that starts an engine with the connector.
	EngineConfig(role Role) string

	// AppendPrefill appends the body of the prefill leg, which asks for one token, not streamed,
	// and has the KV kept for decode.
	AppendPrefill(dst Segments, r *Request, leg *Leg) Segments
	// AppendDecode appends the body of the decode leg. Without a handle that is the plain body if
	// DecodeOnlySafe, unless the connector has no handles in answers.
	AppendDecode(dst Segments, r *Request, h Handle, leg *Leg) Segments
	// ParseAnswer reads a complete, non-streamed prefill answer. Every error is an *AnswerError.
	ParseAnswer(body []byte) (Answer, error)
	// AppendRelease appends a body for POST /v1/completions that decode rejects. It then tells P
	// to free the blocks (vLLM 0.32 and later), without GPU work.
	AppendRelease(dst Segments, r *Request, h Handle) Segments
	// AppendDrain appends a body for the path of the request. Its one-token answer, read to the
	// end, frees the blocks on every vLLM.
	AppendDrain(dst Segments, r *Request, h Handle) Segments
}

// Pairing is a Dialect whose decode leg names the prefill engine before that engine has answered.
// What it has to know of the engine comes from a bootstrap server beside it.
type Pairing interface {
	Dialect
	// Bootstrap is the usual port of the server, and the path to ask it for the engine. The path is
	// empty if the server's address is all that a leg needs.
	Bootstrap() (port int, path string)
	// ReadPeer reads the server's answer. address is the server's host:port.
	ReadPeer(address string, answer []byte) (Peer, error)
	// Finishes says that a prefill must run to its end although its client has left. Decode has
	// registered blocks of its own, and holds them until the KV comes.
	Finishes() bool
	// Pair is the handle of the leg's blocks, made by xpyd. It is for a release, after a prefill
	// that no decode will use. Raw aliases leg.Scratch.
	Pair(leg *Leg) Handle
}

// Peer is a prefill engine, as decode engines find it.
type Peer struct {
	Host     string // of the bootstrap server, an IPv6 address in brackets
	Port     string
	EngineID string // plain in JSON
}

// Role is which of the two legs an engine serves.
type Role bool

// The two roles.
const (
	Prefills Role = false
	Decodes  Role = true
)

// Reclaim is how the blocks of a prefill that no decode will read are freed.
type Reclaim uint8

const (
	ReclaimReject Reclaim = iota // by AppendRelease if the engine knows it, otherwise by AppendDrain
	ReclaimDrain                 // by AppendDrain, under the leg's own id
	ReclaimLease                 // only by the end of the engine's lease
	ReclaimNone                  // a prefill that has answered pins nothing
)

// Leg is one attempt. The dialect formats values into Scratch and never shortens it. The owner of
// the Leg may shorten it when no segments of the attempt are in use.
type Leg struct {
	ID      string // unique for each attempt, the same on both legs; of [A-Za-z0-9._-]
	Peer    *Peer  // the prefill engine; nil unless the dialect is a Pairing
	Scratch []byte
}

// text formats parts into the leg's scratch.
func (l *Leg) text(parts ...string) []byte {
	first := len(l.Scratch)
	for _, p := range parts {
		l.Scratch = append(l.Scratch, p...)
	}
	return slices.Clip(l.Scratch[first:])
}

// Lookup finds a dialect by its name in a configuration.
func Lookup(name string) (Dialect, bool) {
	for _, d := range dialects() {
		if d.Name() == name {
			return d, true
		}
	}
	return nil, false
}

// Names lists the dialects that Lookup knows.
func Names() []string {
	var names []string
	for _, d := range dialects() {
		names = append(names, d.Name())
	}
	return names
}

func dialects() []Dialect {
	return []Dialect{nixl{}, nixlPush{}, mooncake{}, sharedStorage, offloading, lmcache, moriio{}, sglang{}}
}

// engineConfig is a --kv-transfer-config without further settings.
func engineConfig(connector string, role Role) string {
	kvRole := "kv_producer"
	if role == Decodes {
		kvRole = "kv_consumer"
	}
	return `--kv-transfer-config '{"kv_connector":"` + connector + `","kv_role":"` + kvRole + `"}'`
}

// noHandle is for connectors whose prefill answers hold no handle. A dialect embeds it.
type noHandle struct{}

func (noHandle) HandleInAnswer() bool                    { return false }
func (noHandle) ParseAnswer(body []byte) (Answer, error) { return parseFigures(body) }

// AppendRelease and AppendDrain append nothing, because there is no handle to end.
func (noHandle) AppendRelease(dst Segments, _ *Request, _ Handle) Segments { return dst }
func (noHandle) AppendDrain(dst Segments, _ *Request, _ Handle) Segments   { return dst }

// peerAt is the peer whose bootstrap server is at host:port.
func peerAt(address, engineID string) (Peer, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return Peer{}, fmt.Errorf("bootstrap server: %w", err)
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return Peer{Host: host, Port: port, EngineID: engineID}, nil
}
