// Package handoff is the handles to KV blocks: each is good for one decode, and somebody has to
// end it. Those that nobody will decode are given back, in the background.
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

// KV is about the blocks that a prefill leaves pinned.
type KV struct {
	// Lease is how long P holds them for a D that never comes.
	Lease time.Duration `mapstructure:"lease"`
	// LeaseMargin: a handle older than Lease − LeaseMargin is not sent any more.
	LeaseMargin time.Duration `mapstructure:"lease_margin"`
	// Release is how an abandoned handle is given back: auto, reject, decode, off.
	Release string `mapstructure:"release"`
	// RewriteLoopback puts P's host in the place of a loopback remote_host.
	RewriteLoopback bool `mapstructure:"rewrite_loopback"`
	// AllowHosts, when not empty, lists the only remote_host values accepted.
	AllowHosts []string `mapstructure:"allow_hosts"`
}

// DefaultKV is the configuration with no file, flag or variable set.
func DefaultKV() KV {
	return KV{Lease: 30 * time.Second, LeaseMargin: 5 * time.Second, Release: "auto"}
}

// Config is what a keeper needs of the process around it.
type Config struct {
	KV        KV
	Dialect   kvparams.Dialect
	Answer    int64          // bytes that an engine may answer a release with
	MaxBroken int            // engines that may break off over one request
	Bodies    *budget.Bodies // drains are charged to it
	Ledger    *Ledger
	// Engine reaches a backend's engine; nil and nil for one that was removed.
	Engine func(*router.Backend) (*upstream.Client, *Places)
	Guard  func(func()) (ok bool) // runs what may panic, and lives

	// These count.
	Ended    func(End) // also that one was issued
	Orphaned func(Orphan)
	Loopback func() // a handle with a loopback host that D cannot reach
	Kept     func() // an answer of D with a handle of its own

	Log zerolog.Logger
}

// Keeper has the handles of one process.
type Keeper struct {
	cfg   Config
	slots chan struct{}  // of releases under way
	wg    sync.WaitGroup // of releases
	// loopbackOnce: a wrong side-channel host is logged once, not per request.
	loopbackOnce sync.Once
	keptOnce     sync.Once // likewise a decode backend with bidirectional_kv_xfer
}

// NewKeeper starts nothing; Close waits for the releases.
func NewKeeper(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, slots: make(chan struct{}, maxReleases)}
}

// Close waits for the releases under way; each is bounded by its own deadline.
func (k *Keeper) Close() { k.wg.Wait() }

// Handoff is that of a request, without a handle.
func (k *Keeper) Handoff() Handoff { return Handoff{k: k} }

// Orphaned counts a handle that nobody can name, and whose blocks wait for their lease.
func (k *Keeper) Orphaned(why Orphan) { k.cfg.Orphaned(why) }
