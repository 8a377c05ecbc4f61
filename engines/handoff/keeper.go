// Package handoff keeps the handles to KV blocks. Each handle is good for one decode, and xpyd has to
// end each one. It gives back handles that no D will use in the background.
package handoff

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"xpyd/intake/budget"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/router"
)

// KV configures what happens to the blocks that a prefill leaves pinned.
type KV struct {
	// Lease is how long P holds the blocks if no D comes for them.
	Lease time.Duration `mapstructure:"lease"`
	// LeaseMargin is a safety margin. xpyd sends no handle that is older than Lease − LeaseMargin.
	LeaseMargin time.Duration `mapstructure:"lease_margin"`
	// Release is how xpyd gives back an abandoned handle: auto, reject, decode or off.
	Release string `mapstructure:"release"`
	// RewriteLoopback replaces a loopback remote_host with P's host, and a loopback peer_host of an encoding with
	// that of the engine that made it.
	RewriteLoopback bool `mapstructure:"rewrite_loopback"`
	// AllowHosts lists the remote_host values that xpyd accepts. If it is empty, xpyd accepts all.
	AllowHosts []string `mapstructure:"allow_hosts"`
	// ReuseTokensFrom is the size of a chat's prompt, in bytes, from which the token ids of the prefill
	// go to D. 0: never.
	ReuseTokensFrom int64 `mapstructure:"reuse_tokens_from"`
	// TransferGBps is the speed that transfers reach at least on the link that they should take. 0: not known.
	TransferGBps float64 `mapstructure:"transfer_gbps"`
}

// DefaultKV is the configuration if no file, flag or variable sets it.
func DefaultKV() KV {
	return KV{Lease: 30 * time.Second, LeaseMargin: 5 * time.Second, Release: "auto"}
}

// Config is what a keeper needs from the process around it.
type Config struct {
	KV        KV
	Dialects  *kvparams.Dialects
	Answer    int64          // greatest size of an engine's answer to a release, in bytes
	MaxBroken int            // how many engines may break off over one request
	Bodies    *budget.Bodies // the budget to which drains are charged
	Ledger    *Ledger
	// Engine reaches a backend's engine. It returns nil and nil for a backend that was removed.
	Engine func(*router.Backend) (*upstream.Client, *Places)
	Guard  func(func()) (ok bool)     // runs a function and survives its panic
	Gone   func(*router.Backend) bool // asks an engine whether it is alive

	// The keeper calls these so that the process can count.
	Ended    func(End) // a handle was issued, or has ended
	Orphaned func(Orphan)
	Loopback func() // a handle with a loopback host that D cannot reach
	Kept     func() // an answer of D with a handle of its own

	Log zerolog.Logger
}

// Keeper keeps the handles of one process.
type Keeper struct {
	cfg   Config
	slots chan struct{}  // of releases under way
	wg    sync.WaitGroup // of releases
	// loopbackOnce has a wrong side-channel host logged once, not per request.
	loopbackOnce sync.Once
	encodingOnce sync.Once // the same for that of an encode backend
	keptOnce     sync.Once // the same for a decode backend with bidirectional_kv_xfer
}

// NewKeeper makes a keeper, which starts nothing. Close waits for its releases.
func NewKeeper(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, slots: make(chan struct{}, maxReleases)}
}

// Close waits for the running releases. Each has its own deadline.
func (k *Keeper) Close() { k.wg.Wait() }

// Handoff returns the Handoff of one request, which has no handle at first.
func (k *Keeper) Handoff() Handoff { return Handoff{k: k} }

// Orphaned counts a prefill of b whose blocks xpyd cannot name, so that they wait for the end of their
// lease.
func (k *Keeper) Orphaned(b *router.Backend, why Orphan) {
	if k.cfg.Dialects.Of(b.Connector).Reclaim() != kvparams.ReclaimNone {
		k.cfg.Orphaned(why)
	}
}
