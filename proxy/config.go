package proxy

import (
	"slices"
	"time"

	"xpyd/engines/handoff"
	"xpyd/intake/cors"
	"xpyd/intake/limits"
	"xpyd/metrics/trace"
	"xpyd/netio/tlsconf"
	"xpyd/proxy/carry"
)

// AdminToken is a bearer token of the admin port.
type AdminToken struct {
	Name, Secret string // Name is who holds it; empty: anybody may
	ReadOnly     bool   // it changes nothing, and takes no profiles
}

// Config is everything that the HTTP side needs. Package config fills it from flags, environment and file,
// and validates it before New sees it. The mapstructure tags are the keys of the configuration file.
type Config struct {
	// Listen is the data port, host:port; an empty host means all addresses.
	Listen string `mapstructure:"listen"`
	// Admin is the port for metrics, pools and profiles. Empty switches it off.
	Admin string `mapstructure:"admin"`
	// Connector names the kvparams dialect that the engines speak.
	Connector string `mapstructure:"connector"`
	// APIKeys are the keys that clients may show. Without any, clients need no key.
	APIKeys []string `mapstructure:"api_keys"`
	// APIKeyFile has more client keys, one on each line, perhaps with names. # starts a comment.
	APIKeyFile string `mapstructure:"api_key_file"`
	// KeysFile has more client keys, with names and limits.
	KeysFile string `mapstructure:"keys_file"`
	// Keys are the client keys with names. APIKeys are the others.
	Keys []limits.Terms `mapstructure:"-"`
	// BackendAPIKey replaces the client's Authorization on the way to the backends.
	BackendAPIKey string `mapstructure:"backend_api_key"`
	// BackendAPIKeyFile is a file with this key, in place of BackendAPIKey.
	BackendAPIKeyFile string `mapstructure:"backend_api_key_file"`
	// AdminToken is the bearer token of the admin port. If that port is not on loopback, it or
	// AdminTLS.ClientCA must be set.
	AdminToken string `mapstructure:"admin_token"`
	// AdminTokenFile is a file with tokens, in place of AdminToken.
	AdminTokenFile string `mapstructure:"admin_token_file"`
	// AdminTokens are those of AdminTokenFile.
	AdminTokens []AdminToken `mapstructure:"-"`
	// Siblings are the admin ports of other processes of the same service, to which the status page links.
	Siblings []string `mapstructure:"siblings"`
	// DenyFields are top-level request fields that xpyd answers with 400.
	DenyFields []string `mapstructure:"deny_fields"`
	// Warmup sends a one-token request through each new pair of engines, because the first transfer
	// between two engines includes their handshake.
	Warmup bool `mapstructure:"warmup"`
	// Pprof opens /debug/pprof/ on the admin port. Heap profiles contain prompts.
	Pprof bool `mapstructure:"pprof"`

	// TLS, AdminTLS and BackendTLS are for clients, for the admin port and for https:// backends.
	TLS        tlsconf.Server `mapstructure:"tls"`
	AdminTLS   tlsconf.Server `mapstructure:"admin_tls"`
	BackendTLS tlsconf.Client `mapstructure:"backend_tls"`

	Tracing trace.Config `mapstructure:"tracing"`

	CORS          cors.Config   `mapstructure:"cors"`
	ProxyProtocol ProxyProtocol `mapstructure:"proxy_protocol"`

	Headers    Headers    `mapstructure:"headers"`
	Routes     Routes     `mapstructure:"routes"`
	Limits     Limits     `mapstructure:"limits"`
	Timeouts   Timeouts   `mapstructure:"timeouts"`
	KV         handoff.KV `mapstructure:"kv"`
	DecodeOnly DecodeOnly `mapstructure:"decode_only"`
	Answers    `mapstructure:",squash"`
}

// ProxyProtocol is for balancers that pass TCP connections through.
type ProxyProtocol struct {
	// From are the addresses and networks of these balancers. Each of their connections begins with a
	// header of the PROXY protocol, version 2, which has the client's address.
	From []string `mapstructure:"from"`
}

// Terms returns the terms of all client keys. Keys without a name come first.
func (c *Config) Terms() []limits.Terms { return slices.Concat(limits.Plain(c.APIKeys), c.Keys) }

// Headers are settings for the header fields of requests and answers.
type Headers struct {
	// Pass names the fields that xpyd passes to the engines besides the usual ones, with both legs and with other
	// requests that it passes on. Of several lines with one name, the first counts.
	Pass []string `mapstructure:"pass"`
	// Timing tells clients in Server-Timing where the time to their answer went.
	Timing bool `mapstructure:"timing"`
	// Backends tells clients in X-Xpyd-Prefill and X-Xpyd-Decode which engines served a completion.
	Backends bool `mapstructure:"backends"`
}

// Routes are settings for the paths of the data port.
type Routes struct {
	// Pass names paths that xpyd serves besides its own. One engine answers them. Each has the form
	// that routes.Parse reads.
	Pass []string `mapstructure:"pass"`
}

// Limits bound what a client or a backend may make the process hold. Sizes are in bytes.
type Limits struct {
	// Body is the largest request body. A larger one gets 413.
	Body int64 `mapstructure:"body"`
	// BodyBudget bounds the request bodies in memory at any moment, for all clients together. xpyd
	// charges bodies as they grow. When it is spent, requests get 503 with Retry-After. Its last eighth
	// is for bodies up to 64 KiB.
	BodyBudget int64 `mapstructure:"body_budget"`
	// Answer is the largest answer that xpyd buffers whole. It always buffers P's answer. After a
	// larger one, decode serves the request alone, or the client gets 502. xpyd buffers D's answer if
	// it is not a stream, and streams a larger one on.
	Answer int64 `mapstructure:"answer"`
	// AnswerBudget bounds D's whole answers in memory at any moment, beyond 64 KiB for each. When it is
	// spent, xpyd streams an answer on like one larger than Answer.
	AnswerBudget int64 `mapstructure:"answer_budget"`
	// ClientShare is the share of BodyBudget, and of AnswerBudget, that one client may hold. A client
	// is an API key, or an address if no keys are set. Above 0, up to 1.
	ClientShare float64 `mapstructure:"client_share"`
	// ConnectionsPerIP caps the open connections of one client address. 0: no cap.
	ConnectionsPerIP int `mapstructure:"connections_per_ip"`
	// ClientInFlight caps the completions and relayed requests that one client has at a time. A client is an API key, or an
	// address if no keys are set. One more gets 429. 0: no cap.
	ClientInFlight int `mapstructure:"client_in_flight"`
	// RequireContentLength refuses chunked uploads with 411.
	RequireContentLength bool `mapstructure:"require_content_length"`
}

// Timeouts bound every wait in the life of a completion.
type Timeouts struct {
	// Header is how long a request head may take to arrive (408).
	Header time.Duration `mapstructure:"header"`
	// Body is how long a request body may take to arrive, plus 1 s per 64 KiB (408). At no moment is
	// more than this left.
	Body time.Duration `mapstructure:"body"`
	// BodyStall is the longest silence inside a request body (408).
	BodyStall time.Duration `mapstructure:"body_stall"`
	// Idle is how long a client's kept-alive connection may be idle before it is closed.
	Idle time.Duration `mapstructure:"idle"`
	// Dial is how long a connect to a backend may take.
	Dial time.Duration `mapstructure:"dial"`
	// Handshake is how long the TLS handshake with a backend may take, after the dial. Unlike the
	// kernel, a busy engine may be slow to answer.
	Handshake time.Duration `mapstructure:"handshake"`
	// Encode is how long all encode legs of a request may take. After it, the next leg's engine encodes.
	Encode time.Duration `mapstructure:"encode"`
	// Prefill is how long a whole prefill leg may take (504 prefill_timeout).
	Prefill time.Duration `mapstructure:"prefill"`
	// FirstEvent is how long a decode leg may take to its first event, or to its whole answer if that
	// is not a stream (504 decode_timeout).
	FirstEvent time.Duration `mapstructure:"first_event"`
	// StreamIdle is the longest silence inside a stream.
	StreamIdle time.Duration `mapstructure:"stream_idle"`
	// Request is how long a whole request may take, with all legs and retries. After it, the client
	// gets 504, or an error event in a stream (deadline).
	Request time.Duration `mapstructure:"request"`
	// WriteStall is how long a client may leave a write unread.
	WriteStall time.Duration `mapstructure:"write_stall"`
	// UpstreamIdle is how long a backend connection may be idle before it is closed. Keep it below
	// uvicorn's keep-alive of 5 s, or requests may meet a closing connection.
	UpstreamIdle time.Duration `mapstructure:"upstream_idle"`
	// PrefillAbortGrace is how long P may still answer after the client has left, see router.Router.AbortAt. An abort
	// in the last milliseconds of a prefill strands its blocks for the lease.
	PrefillAbortGrace time.Duration `mapstructure:"prefill_abort_grace"`
	// DecodeAbortGrace keeps D's connection open after the client has left, for engines that lose the
	// blocks of a request aborted before its first event.
	DecodeAbortGrace time.Duration `mapstructure:"decode_abort_grace"`
	// DrainDelay is the time between "not ready" and the end of the listener.
	DrainDelay time.Duration `mapstructure:"drain_delay"`
	// Drain is how long running requests may take to end after TERM.
	Drain time.Duration `mapstructure:"drain"`
}

// DecodeOnly says what happens when no prefill is available.
type DecodeOnly struct {
	// Enabled lets D prefill by itself, if the connector allows it.
	Enabled bool `mapstructure:"enabled"`
	// MaxShare caps such requests at this share of the decode pool's slots. Each backend that is not
	// down has decode_max_in_flight slots, or 256. 1 means no cap, and 0 allows none.
	MaxShare float64 `mapstructure:"max_share"`
}

// Answers says what clients see of the engines' answers, and of their failures.
type Answers struct {
	Carry  carry.Config `mapstructure:"carry"`
	Usage  Usage        `mapstructure:"usage"`
	Errors Errors       `mapstructure:"errors"`
}

// Usage says how clients see the usage that engines report.
type Usage struct {
	// Rewrite puts P's cached_tokens into the last usage object of an answer.
	Rewrite bool `mapstructure:"rewrite"`
}

// Errors says what clients see of the backends' errors.
type Errors struct {
	// ExposeUpstream relays the text of a backend's 5xx.
	ExposeUpstream bool `mapstructure:"expose_upstream"`
}

// DefaultConfig returns the configuration if no file, flag or variable sets it.
func DefaultConfig() Config {
	return Config{
		Listen: ":8080", Admin: "127.0.0.1:8081", Connector: "nixl", Warmup: true,
		Tracing: trace.DefaultConfig(),
		Headers: Headers{Pass: []string{"X-Session-ID", "X-Vllm-Priority"}, Timing: true},
		Limits:  Limits{Body: 32 << 20, BodyBudget: 1 << 30, Answer: 8 << 20, AnswerBudget: 256 << 20, ClientShare: 0.5},
		Timeouts: Timeouts{
			Header: 10 * time.Second, Body: 30 * time.Second, BodyStall: 10 * time.Second, Idle: 120 * time.Second,
			Dial: time.Second, Handshake: 5 * time.Second, Encode: 60 * time.Second, Prefill: 600 * time.Second, FirstEvent: 600 * time.Second,
			StreamIdle: 300 * time.Second, Request: time.Hour, WriteStall: 30 * time.Second, UpstreamIdle: 4 * time.Second,
			PrefillAbortGrace: time.Second, DrainDelay: 0, Drain: 300 * time.Second,
		},
		KV:         handoff.DefaultKV(),
		DecodeOnly: DecodeOnly{Enabled: true, MaxShare: 1},
		Answers:    Answers{Carry: carry.DefaultConfig(), Usage: Usage{Rewrite: true}},
	}
}
