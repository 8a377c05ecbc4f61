package kvparams

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// Dialect is the protocol of one KV connector: what the two legs of a completion carry, and what comes
// back. It has no state and is safe for concurrent use. Each dialect has its own file and a row in
// dialects. A dialect whose decode leg names a prefill engine that has not answered is also a Pairing.
type Dialect interface {
	Name() string
	// Concurrent says that xpyd sends both legs at once, because decode needs nothing from the prefill
	// answer. Decode then waits for the prefill engine to send the KV blocks.
	Concurrent() bool
	// HandleInAnswer says that the prefill answer holds the handle that decode needs.
	HandleInAnswer() bool
	// DecodeOnlySafe says that decode serves a request without KV parameters, and does not wait for KV
	// blocks that never come. See ServesAlone for what the engine's release changes.
	DecodeOnlySafe() bool
	Reclaim() Reclaim
	// EngineConfig is the option of `vllm serve` that starts an engine with the connector.
	EngineConfig(role Role) string

	// AppendPrefill appends the body of the prefill leg, which asks for one token without streaming,
	// and tells the engine to keep the KV blocks for decode.
	AppendPrefill(dst Segments, r *Request, leg *Leg) Segments
	// AppendDecode appends the body of the decode leg. Without a handle that is the plain body if
	// DecodeOnlySafe, unless the connector has no handles in answers.
	AppendDecode(dst Segments, r *Request, h Handle, leg *Leg) Segments
	// ParseAnswer reads a complete, non-streamed prefill answer. Every error is an *AnswerError.
	ParseAnswer(body []byte) (Answer, error)
	// AppendRelease appends a body for POST /v1/completions that decode rejects. Decode then tells P to
	// free the blocks (vLLM 0.32 and later), without GPU work.
	AppendRelease(dst Segments, r *Request, h Handle) Segments
	// AppendDrain appends a body for the path of the request. It asks for one token. Once xpyd has read
	// the whole answer, the blocks are free, with every vLLM. legID is the ID of the leg that has the handle.
	AppendDrain(dst Segments, r *Request, h Handle, legID string) Segments
}

// Pairing is a Dialect whose decode leg names the prefill engine before that engine has answered. It
// gets what it has to know about the engine from a bootstrap server on the engine's host.
type Pairing interface {
	Dialect
	// Bootstrap returns the usual port of the server, and the path at which it describes the engine.
	// The path is empty if a leg needs only the server's address.
	Bootstrap() (port int, path string)
	// ReadPeer reads the server's answer. address is the server's host:port. rank is a data-parallel rank of the engine, or
	// below 0 for the whole engine.
	ReadPeer(address string, rank int, answer []byte) (Peer, error)
	// NeedsRank says that a decode leg has to name one rank of a prefill engine that has several.
	NeedsRank() bool
	// Finishes says that a prefill must run to its end although its client has left. Decode has
	// registered blocks of its own, and holds them until the KV comes.
	Finishes() bool
	// Pair makes the handle of the leg's blocks, for a release after a prefill that no decode will use.
	// Raw aliases leg.Scratch.
	Pair(leg *Leg) Handle
}

// Directed is a Dialect whose prefill leg names the decode engine. P then writes into the memory of that
// engine, so no other engine may have the handle.
type Directed interface {
	Dialect
	// TargetPort is the usual port of a decode engine, where prefill engines find it, and LastTargetPort the last one
	// that it can have.
	TargetPort() int
	LastTargetPort() int
}

// Patient is a Dialect whose decode engine waits without a limit for the blocks of a prefill engine that is
// gone, if the two had shaken hands before. It keeps its own blocks for them even if the client leaves.
type Patient interface {
	Dialect
	WaitsForTheDead() bool
}

// Waits reports whether d is such a dialect.
func Waits(d Dialect) bool {
	w, ok := d.(Patient)
	return ok && w.WaitsForTheDead()
}

// Fragile is a Dialect whose engines of both roles die if a request is cut while they load its blocks.
type Fragile interface {
	Dialect
	DiesOfACut() bool
}

// Dies reports whether d is such a dialect.
func Dies(d Dialect) bool {
	f, ok := d.(Fragile)
	return ok && f.DiesOfACut()
}

// Matured is a Dialect whose decode engines serve a request without KV parameters since a release of vLLM,
// the minor number of 0.x. Earlier ones do not.
type Matured interface {
	Dialect
	AloneSince() int
}

// ServesAlone reports whether decode engines of the dialect and of that version serve a request without KV parameters.
func ServesAlone(d Dialect, version string) bool {
	m, ok := d.(Matured)
	return d.DecodeOnlySafe() || ok && Since(version, m.AloneSince())
}

// Roleless is a Dialect that binds no engine to a role: the parameters of each request say which leg the engine runs.
type Roleless interface {
	Dialect
	EitherRole() bool
}

// EitherRole reports whether d is such a dialect. Of the others, no engine has been seen to run both legs.
func EitherRole(d Dialect) bool {
	r, ok := d.(Roleless)
	return ok && r.EitherRole()
}

// EitherConfig is EngineConfig for an engine that may have either role.
func EitherConfig(d Dialect) string {
	return strings.Replace(d.EngineConfig(Prefills), "kv_producer", "kv_both", 1)
}

// EitherRoles lists the names of those dialects.
func EitherRoles() (names []string) {
	for _, d := range dialects() {
		if EitherRole(d) {
			names = append(names, d.Name())
		}
	}
	return names
}

// Peer tells a decode engine how to find a prefill engine.
type Peer struct {
	Host     string // host of the bootstrap server, with brackets around an IPv6 address
	Port     string
	EngineID string // needs no escapes in JSON
	Rank     string // data-parallel rank of a prefill engine, where a leg names it by its number
	Ranks    int    // data-parallel ranks of a decode engine, of which it is one; 0: it is no rank
}

// Role says which of the two legs an engine serves.
type Role bool

// The two roles.
const (
	Prefills Role = false
	Decodes  Role = true
)

// Reclaim is how xpyd frees the blocks of a prefill that no decode will read.
type Reclaim uint8

const (
	ReclaimReject  Reclaim = iota // by AppendRelease if the engine knows it, otherwise by AppendDrain
	ReclaimDrain                  // by AppendDrain, with the leg's own id
	ReclaimLease                  // only by the end of the engine's lease
	ReclaimNone                   // a prefill that has answered pins nothing
	ReclaimRefusal                // only by AppendRelease, because the handle belongs to one decode engine, and a drain might use another
)

// Leg is one attempt. The dialect formats values into Scratch and never shortens it. The owner of
// the Leg may shorten it when no segments of the attempt are in use.
type Leg struct {
	ID      string // unique for each attempt, the same on both legs; of [A-Za-z0-9._-]
	Peer    *Peer  // the prefill engine; nil unless the dialect is a Pairing
	Target  *Peer  // the decode engine; nil unless the dialect is Directed
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

// EngineName is vLLM's name of the connector, or "" if its engines are not vLLM or have any of several.
func EngineName(d Dialect) string {
	_, name, _ := strings.Cut(d.EngineConfig(Prefills), `"kv_connector":"`)
	name, _, _ = strings.Cut(name, `"`)
	return name
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
	return []Dialect{
		nixl{},
		nixlPush{},
		mooncake{},
		sharedStorage,
		offloading,
		offloadingP2P{},
		lmcache,
		mooncakeStore,
		flexKV,
		hf3fs,
		anyStore,
		moriio{},
		moriioWrite{},
		sglang{},
	}
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
func (noHandle) AppendRelease(dst Segments, _ *Request, _ Handle) Segments         { return dst }
func (noHandle) AppendDrain(dst Segments, _ *Request, _ Handle, _ string) Segments { return dst }

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
