package router

import "time"

// Config names the pools. It has been validated: every URL is http://host:port, no URL is twice in
// a pool, and the policies are known.
type Config struct {
	// Prefill and Decode are base URLs, each followed by its weight if that is not 1, see
	// ParseEntry. With an empty Prefill the router is a plain balancer over Decode.
	Prefill []string `mapstructure:"prefill"`
	Decode  []string `mapstructure:"decode"`
	// PrefillPolicy and DecodePolicy are names from Policies. ChosenDecodePolicy says what an empty
	// DecodePolicy means.
	PrefillPolicy string `mapstructure:"prefill_policy"`
	DecodePolicy  string `mapstructure:"decode_policy"`
	// PrefillMaxInFlight and DecodeMaxInFlight bound the leases on one backend; 0 is no cap.
	PrefillMaxInFlight int `mapstructure:"prefill_max_in_flight"`
	DecodeMaxInFlight  int `mapstructure:"decode_max_in_flight"`
	// Queue bounds the wait of requests while all backends of a pool have reached their cap.
	Queue Line `mapstructure:"queue"`

	Affinity Affinity `mapstructure:"affinity"`
	// PD says when a request gets a prefill.
	PD PD `mapstructure:"pd"`

	Health  Health  `mapstructure:"health"`
	Routing Routing `mapstructure:"routing"`
}

// ChosenDecodePolicy is DecodePolicy if that is set. Otherwise it is prefix if decode computes
// prompts itself, because their blocks are then on one backend, and least_request if it does not.
func (c Config) ChosenDecodePolicy() string {
	switch {
	case c.DecodePolicy != "":
		return c.DecodePolicy
	case c.PD.Mode != PDAlways || c.PD.ThresholdTokens > 0 || len(c.Prefill) == 0:
		return "prefix"
	}
	return "least_request"
}

// Routing says how the policies learn about the engines.
type Routing struct {
	// Poll is the time between two readings of an engine's own /metrics. With 0 none is read. In
	// large pools it is longer, because at most 256 are read in a second.
	Poll time.Duration `mapstructure:"poll"`
	// PrefixMemory is the size in bytes of two tables, one for each role, in which the policy
	// prefix remembers which backend has had which prompts. With 0 it remembers none. A table takes
	// half of the memory, and is made only if it is needed.
	PrefixMemory int64 `mapstructure:"prefix_memory"`
	// EstimateCaches makes both tables whatever the policies, for Snapshot.Cached.
	EstimateCaches bool `mapstructure:"-"`
}

// Health bounds what failures do to a backend.
type Health struct {
	// EjectAfter failed legs in a row eject a backend; 0 ejects none for any cause.
	EjectAfter int `mapstructure:"eject_after"`
	// EjectFor is the length of a first ejection. The n-th in a row takes n times as long, up to
	// EjectMax.
	EjectFor time.Duration `mapstructure:"eject_for"`
	EjectMax time.Duration `mapstructure:"eject_max"`
	// Interval is the time between two active checks of a backend. SuspectInterval is that time
	// for a backend that is not up or has just failed. Timeout is the time of one check.
	Interval        time.Duration `mapstructure:"interval"`
	SuspectInterval time.Duration `mapstructure:"suspect_interval"`
	Timeout         time.Duration `mapstructure:"timeout"`
	// Fall failed active checks in a row take a backend down, and Rise passed ones bring it back.
	// 0 counts as 1.
	Fall int `mapstructure:"fall"`
	Rise int `mapstructure:"rise"`
	// SlowStart is the time in which a backend that joins or comes back rises to its full share;
	// 0 is off.
	SlowStart time.Duration `mapstructure:"slow_start"`
}

// DefaultConfig has empty pools, the policy prefix for prefill, and no caps.
func DefaultConfig() Config {
	return Config{
		PrefillPolicy: "prefix",
		PD:            PD{Mode: PDAlways, StallWeight: StallWeight},
		Queue:         Line{Length: 1000, Wait: 5 * time.Second},
		Health: Health{
			EjectAfter: 5, EjectFor: 30 * time.Second, EjectMax: 300 * time.Second,
			Interval: 5 * time.Second, SuspectInterval: time.Second, Timeout: 2 * time.Second,
			Fall: 3, Rise: 2, SlowStart: 30 * time.Second,
		},
		Routing: Routing{Poll: time.Second, PrefixMemory: 64 << 20},
	}
}
