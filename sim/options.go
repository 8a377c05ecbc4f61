package sim

import (
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"time"
)

// Role says what an engine is for. Prefill and decode engines have a KV connector, encode engines an EC
// connector (encode.go). As with NIXL,
// the kv_transfer_params of each request decide which leg they run. A "both" engine has no
// connector and ignores them.
type Role string

// The roles an engine can have.
const (
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
	RoleBoth    Role = "both"
	RoleEncode  Role = "encode"
)

// Options describes one engine. The zero value of a field means its default. A negative duration
// means none at all.
type Options struct {
	Name        string // name in events, records and log lines; default the role
	Role        Role   // default RoleBoth
	Listen      string // host:port of the HTTP side, default 127.0.0.1:0
	SideChannel string // host:port of the KV side channel, default 127.0.0.1:0
	Model       string // served model name, default "sim"

	TLS *tls.Config // of the HTTP side; nil: plain HTTP. The side channel is always plain.

	// Connector is how KV travels, NIXL in pull mode by default. Storage is the folder of
	// ConnectorShared. Bootstrap is host:port of the bootstrap server of ConnectorMooncake, default
	// 127.0.0.1:0. That of ConnectorSGLang is the side channel.
	Connector Connector
	Storage   string
	Bootstrap string
	// Encodings is the folder of an ECExampleConnector, the same for all engines. Without one encode
	// engines keep encodings, and others fetch them from there.
	Encodings string
	// Encodes is ec_role ec_both: a prefill, decode or plain engine keeps what it encodes for others, and
	// says so in its answers.
	Encodes bool

	// Version is what /version answers, default "0.32.0". It selects how older engines behave.
	// Below 0.32 a stream whose KV did not come has no error event, only [DONE]. In 0.30 and 0.31 a
	// rejected request with the handle of a prefill engine that cannot be reached kills the engine.
	// Below 0.21 a rejected request does not free the prefill engine's blocks. From 0.33 on a prefill's stream has
	// its handle, a response may be incomplete, and MoRIIO's decode engines in read mode compute prompts without a handle. A decode engine
	// takes KV only from its own version.
	Version string

	BlockSize   int // tokens a KV block, default 16
	NumBlocks   int // KV blocks, default 8192
	MaxSeqs     int // sequences that run at once, the rest queue; default 64
	MaxModelLen int // tokens of prompt and answer together, default 32768 or what the blocks hold

	NoPrefixCaching bool // vLLM's --no-enable-prefix-caching, with which nothing is found in the cache

	// PrefillTokensPerSecond is the rate of the engine, which computes prompts one after the other,
	// in the order in which they came. Default 20000. +Inf computes in no time.
	PrefillTokensPerSecond float64

	// MaxBatchedTokens is max_num_batched_tokens, default 2048. It is the size of the chunks in
	// which a prompt is computed. Running answers get one token between two chunks. Negative means
	// that requests do not slow each other at all.
	MaxBatchedTokens int

	TransferPerBlock time.Duration // time to pull one block, default 50µs; Engine.SetTransferPerBlock changes it
	TokenLatency     time.Duration // time between two tokens, default 15ms

	// Profile takes the place of the times above. Nil means that they count.
	Profile *Profile

	// AbortWindow is the last part of a prefill, in which a client that leaves
	// strands the blocks until the lease ends. Default 3ms, never longer than
	// the prefill itself.
	AbortWindow time.Duration

	// Lease is kv_lease_duration, default 30s. It is how long a finished prefill's blocks wait for
	// a reader. A decode engine where the request queues sends a heartbeat every sixth of it, and
	// each extends it to now + 2/3 Lease.
	Lease time.Duration
	// FetchTimeout is how long a decode engine of ConnectorP2P waits for KV, default 30s.
	FetchTimeout time.Duration

	// Weights names the weights that the engine has loaded. KV of other weights is wrong for it.
	Weights string

	// ToolCallParser is vLLM's --tool-call-parser, with --enable-auto-tool-choice: "hermes",
	// or "" for none. Without one a request that may or must call a tool is refused.
	ToolCallParser string

	// Bidirectional is kv_connector_extra_config.bidirectional_kv_xfer. A decode engine keeps the
	// blocks of each request that it has answered for decoderTTL. It describes
	// them in its answer, and from 0.33 on also in the stream's chunk that ends a choice.
	Bidirectional bool

	Parallel Parallel // parallel.go

	LoadFailure      string        // kv_load_failure_policy: "fail" (default) or "recompute"
	HandshakeTimeout time.Duration // how long to try an unknown peer before the load fails, default 5s
	KeepAlive        time.Duration // how long an HTTP connection may be idle before it closes, default 5s like uvicorn
	APIKey           string        // when set, /v1* needs "Authorization: Bearer APIKey"

	// Log gets one JSON line for each request (a Record), never the prompt. Nil means none.
	Log io.Writer

	// Hook is called at each phase of a request, on the request's goroutine. It may block, which
	// holds the request in that phase.
	Hook func(Event)
}

// decoderTTL is decoder_kv_blocks_ttl's default.
const decoderTTL = 480 * time.Second

// Fast returns o at test speed. Prefill, transfer and tokens take no time, and an unknown peer is
// given up after 200ms, each unless o already sets it.
func (o Options) Fast() Options {
	if o.PrefillTokensPerSecond == 0 {
		o.PrefillTokensPerSecond = math.Inf(1)
	}
	setDefault(&o.TransferPerBlock, -1)
	setDefault(&o.TokenLatency, -1)
	setDefault(&o.HandshakeTimeout, 200*time.Millisecond)
	return o
}

// Validate reports the first option that Start would refuse, except addresses that cannot be
// listened on.
func (o Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	setDefault(&o.Role, RoleBoth)
	setDefault(&o.Name, string(o.Role))
	setDefault(&o.Listen, "127.0.0.1:0")
	setDefault(&o.SideChannel, "127.0.0.1:0")
	setDefault(&o.Connector, ConnectorNixl)
	setDefault(&o.Bootstrap, "127.0.0.1:0")
	setDefault(&o.Model, "sim")
	setDefault(&o.Version, "0.32.0")
	setDefault(&o.BlockSize, 16)
	setDefault(&o.NumBlocks, 8192)
	setDefault(&o.MaxModelLen, min(32768, o.NumBlocks*o.BlockSize))
	setDefault(&o.PrefillTokensPerSecond, 20000)
	if o.Profile != nil {
		setDefault(&o.MaxBatchedTokens, o.Profile.MaxBatchedTokens)
		setDefault(&o.MaxSeqs, o.Profile.MaxSeqs)
	}
	setDefault(&o.MaxBatchedTokens, 2048)
	setDefault(&o.MaxSeqs, 64)
	setDefault(&o.TransferPerBlock, 50*time.Microsecond)
	setDefault(&o.TokenLatency, 15*time.Millisecond)
	setDefault(&o.AbortWindow, 3*time.Millisecond)
	setDefault(&o.Lease, 30*time.Second)
	setDefault(&o.FetchTimeout, 30*time.Second)
	setDefault(&o.Parallel.TP, 1)
	setDefault(&o.Parallel.KVHeads, 8)
	setDefault(&o.LoadFailure, "fail")
	setDefault(&o.HandshakeTimeout, 5*time.Second)
	setDefault(&o.KeepAlive, 5*time.Second)
	return o, o.validate()
}

func (o Options) validate() error {
	switch o.Role {
	case RolePrefill, RoleDecode, RoleBoth, RoleEncode:
	default:
		return fmt.Errorf("sim role %q: want prefill, decode, both or encode", o.Role)
	}
	if o.LoadFailure != "fail" && o.LoadFailure != "recompute" {
		return fmt.Errorf("sim load failure policy %q: want fail or recompute", o.LoadFailure)
	}
	if o.ToolCallParser != "" && o.ToolCallParser != "hermes" {
		return fmt.Errorf("sim tool call parser %q: want hermes or none", o.ToolCallParser)
	}
	if err := o.validateConnector(); err != nil {
		return err
	}
	for _, a := range [][2]string{{"HTTP", o.Listen}, {"side channel", o.SideChannel}, {"bootstrap", o.Bootstrap}} {
		if _, _, err := net.SplitHostPort(a[1]); err != nil {
			return fmt.Errorf("sim %s address %q: want host:port", a[0], a[1])
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"block size", o.BlockSize}, {"blocks", o.NumBlocks}, {"max seqs", o.MaxSeqs}, {"max model len", o.MaxModelLen},
		{"tensor parallel size", o.Parallel.TP}, {"KV heads", o.Parallel.KVHeads}} {
		if f.value < 1 {
			return fmt.Errorf("sim %s %d: want at least 1", f.name, f.value)
		}
	}
	if o.PrefillTokensPerSecond < 0 || math.IsNaN(o.PrefillTokensPerSecond) {
		return fmt.Errorf("sim prefill speed %v tokens/s: want more than 0", o.PrefillTokensPerSecond)
	}
	if o.Lease < 0 {
		return fmt.Errorf("sim lease %v: want more than 0", o.Lease)
	}
	if o.MaxModelLen > o.NumBlocks*o.BlockSize {
		return fmt.Errorf("sim max model len %d: %d blocks of %d tokens hold only %d",
			o.MaxModelLen, o.NumBlocks, o.BlockSize, o.NumBlocks*o.BlockSize)
	}
	return nil
}

// weights is what the content of each block depends on beside the tokens.
func (o Options) weights() uint64 {
	if o.Weights == "" {
		return 0
	}
	return hashText(o.Weights)
}

// connector reports whether this engine was started with a KV connector.
func (o Options) connector() bool { return o.Role == RolePrefill || o.Role == RoleDecode }

// encodes reports whether other engines may load encodings from this one.
func (o Options) encodes() bool { return o.Encodes || o.Role == RoleEncode }

// reachable reports whether other engines connect to this one. A plain engine may load encodings.
func (o Options) reachable() bool { return o.connector() || o.encodes() }

// since reports whether the engine is of 0.minor or newer.
func (o Options) since(minor int) bool {
	var major, m int
	if n, _ := fmt.Sscanf(o.Version, "%d.%d", &major, &m); n != 2 {
		return true // a development build is newer than any release
	}
	return major > 0 || m >= minor
}

// releasesOnReject reports whether a rejected request's handle is given back.
func (o Options) releasesOnReject() bool { return o.since(21) && o.tellsUnread() }

// diesOfLostPeer reports whether the engine dies when it cannot give a handle back.
func (o Options) diesOfLostPeer() bool { return o.since(30) && !o.since(32) }

// tellsHandleInStreams reports whether the events of a stream have kv_transfer_params.
func (o Options) tellsHandleInStreams() bool { return o.since(33) }

// tellsLoadFailure reports whether a stream whose KV did not come has an error event.
func (o Options) tellsLoadFailure() bool { return o.since(32) }

func (o Options) blocksFor(tokens int) int { return (tokens + o.BlockSize - 1) / o.BlockSize }

func (o Options) prefillTime(tokens int) time.Duration {
	if o.Profile != nil && tokens > 0 {
		return o.Profile.prefillMS(o.Role).at(tokens)
	}
	return time.Duration(float64(tokens) / o.PrefillTokensPerSecond * float64(time.Second))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
