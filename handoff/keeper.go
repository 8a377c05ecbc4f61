// Package handoff keeps the handles to KV blocks. Each handle is good for one decode, and each has to
// be ended. Handles that no D will use are given back in the background.
package handoff

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"xpyd/budget"
	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/upstream"
)

// KV configures what happens to the blocks that a prefill leaves pinned.
type KV struct {
	// Lease is how long P holds the blocks for a D that never comes.
	Lease time.Duration `mapstructure:"lease"`
	// LeaseMargin is a safety margin. A handle older than Lease − LeaseMargin is no longer sent.
	LeaseMargin time.Duration `mapstructure:"lease_margin"`
	// Release is how an abandoned handle is given back: auto, reject, decode or off.
	Release string `mapstructure:"release"`
	// RewriteLoopback replaces a loopback remote_host with P's host.
	RewriteLoopback bool `mapstructure:"rewrite_loopback"`
	// AllowHosts lists the only remote_host values that are accepted. If it is empty, all are.
	AllowHosts []string `mapstructure:"allow_hosts"`
	// ReuseTokensFrom is the size of a chat's prompt, in bytes, from which the token ids of the prefill
	// go to D. 0: never.
	ReuseTokensFrom int64 `mapstructure:"reuse_tokens_from"`
}

// DefaultKV is the configuration with no file, flag or variable set.
func DefaultKV() KV {
	return KV{Lease: 30 * time.Second, LeaseMargin: 5 * time.Second, Release: "auto"}
}

// Config is what a keeper needs of the process around it.
type Config struct {
	KV        KV
	Dialect   kvparams.Dialect
	Answer    int64          // greatest size of an engine's answer to a release, in bytes
	MaxBroken int            // engines that may break off over one request
	Bodies    *budget.Bodies // drains are charged to it
	Ledger    *Ledger
	// Engine reaches a backend's engine. It returns nil and nil for a backend that was removed.
	Engine func(*router.Backend) (*upstream.Client, *Places)
	Guard  func(func()) (ok bool) // runs what may panic, and survives it

	// These are called so that the process can count.
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
	keptOnce     sync.Once // the same for a decode backend with bidirectional_kv_xfer
}

// NewKeeper starts nothing. Close waits for the releases.
func NewKeeper(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, slots: make(chan struct{}, maxReleases)}
}

// Close waits for the releases under way. Each is bounded by its own deadline.
func (k *Keeper) Close() { k.wg.Wait() }

// Handoff returns the Handoff of one request, which has no handle at first.
func (k *Keeper) Handoff() Handoff { return Handoff{k: k} }

// Orphaned counts a prefill whose blocks cannot be named, and wait for the end of their lease.
func (k *Keeper) Orphaned(why Orphan) {
	if k.cfg.Dialect.Reclaim() != kvparams.ReclaimNone {
		k.cfg.Orphaned(why)
	}
}
