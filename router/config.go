package router

import "time"

// Config names the pools. It has been validated: every URL has the form http://host:port, no pool has a
// URL twice, and the policies exist.
type Config struct {
	// Prefill and Decode are engines that have this role alone. Without a prefill engine, the router is a plain
	// balancer.
	Prefill []Entry `mapstructure:"prefill"`
	Decode  []Entry `mapstructure:"decode"`
	// Encode are the engines that encode images and audio before the prefill. It may be empty.
	Encode []Entry `mapstructure:"encode"`
	// Engines are those that may have either role, Prefill or Decode, of each request, or serve it whole.
	Engines []Entry `mapstructure:"engines"`
	// PrefillPolicy and DecodePolicy are names from Policies. ChosenDecodePolicy says what an empty
	// DecodePolicy means.
	PrefillPolicy string `mapstructure:"prefill_policy"`
	DecodePolicy  string `mapstructure:"decode_policy"`
	// PrefillMaxInFlight, DecodeMaxInFlight and EncodeMaxInFlight bound the leases on one backend; 0 is no cap.
	PrefillMaxInFlight int `mapstructure:"prefill_max_in_flight"`
	DecodeMaxInFlight  int `mapstructure:"decode_max_in_flight"`
	EncodeMaxInFlight  int `mapstructure:"encode_max_in_flight"`
	// Queue bounds the wait of requests while all backends of a pool have reached their cap.
	Queue Line `mapstructure:"queue"`

	Affinity Affinity `mapstructure:"affinity"`
	// PD says when a request gets a prefill.
	PD PD `mapstructure:"pd"`

	Health  Health  `mapstructure:"health"`
	Routing Routing `mapstructure:"routing"`

	// Goal is what operators have promised. Alerts compare with it.
	Goal Goal `mapstructure:"objective"`

	// Connector is the connector of engines whose entry names none.
	Connector string `mapstructure:"-"`
	// Found are the base URLs of engines that tell xpyd how many ranks they have. The pools hold the ranks
	// that are known.
	Found []string `mapstructure:"-"`
}

// lists are the lists of entries, each with its role.
func (c *Config) lists() map[Role]*[]Entry {
	return map[Role]*[]Entry{Prefill: &c.Prefill, Decode: &c.Decode, Both: &c.Engines, Encode: &c.Encode}
}

// Entries lists the entries of all pools, each with its role.
func (c Config) Entries() (all []Entry) {
	for _, role := range EntryRoles() {
		for _, e := range *c.lists()[role] {
			e.Role = role
			all = append(all, e)
		}
	}
	return all
}

// With returns the configuration with these entries in the lists of their roles.
func (c Config) With(all []Entry) Config {
	for _, list := range c.lists() {
		*list = nil
	}
	for _, e := range all {
		list := c.lists()[e.Role]
		*list = append(*list, e)
	}
	return c
}

// Pooled lists the entries of the engines that have the role, or may have it.
func (c Config) Pooled(role Role) (some []Entry) {
	for _, e := range c.Entries() {
		if e.Role.in(role) {
			some = append(some, e)
		}
	}
	return some
}

// encodePolicy is that of the encode pool. An encoder has no cache of prompts to be led by.
const encodePolicy = "least_request"

// policy is the name of the role's policy.
func (c Config) policy(role Role) string {
	switch role {
	case Decode:
		return c.ChosenDecodePolicy()
	case Encode:
		return encodePolicy
	}
	return c.PrefillPolicy
}

// ChosenDecodePolicy is DecodePolicy if that is set. Otherwise it is prefix if decode engines compute
// prompts themselves, because the blocks of a chat are then on one of them, and least_request if they
// do not.
func (c Config) ChosenDecodePolicy() string {
	switch {
	case c.DecodePolicy != "":
		return c.DecodePolicy
	case c.PD.Mode != PDAlways || c.PD.ThresholdTokens > 0 || len(c.Pooled(Prefill)) == 0:
		return "prefix"
	}
	return "least_request"
}

// defaultPrefixBlock is about 64 tokens of English, four blocks of vLLM's default size.
const defaultPrefixBlock = 256

// Routing says how the policies learn about the engines.
type Routing struct {
	// Poll is the time between two readings of an engine's own /metrics. With 0, xpyd reads none. In
	// large pools it takes longer, because xpyd reads at most 256 pages a second.
	Poll time.Duration `mapstructure:"poll"`
	// PrefixMemory is the size in bytes of two tables, one for each role, in which the policy prefix
	// remembers which backend has had which prompts. With 0, it remembers none. A table takes half of
	// the memory, and the router makes it only if needed.
	PrefixMemory int64 `mapstructure:"prefix_memory"`
	// PrefixBlock is how many bytes of a prompt a hash of Want.Prefix stands for.
	PrefixBlock int64 `mapstructure:"prefix_block"`
	// KVEventsMemory is about how many bytes what is known of the blocks of all engines may take that say it by events.
	// All of them have the same part of it.
	KVEventsMemory int64 `mapstructure:"kv_events_memory"`
	// EstimateCaches makes both tables for Snapshot.Cached, whatever the policies are.
	EstimateCaches bool `mapstructure:"-"`
}

// Goal is what nine of ten streams reach, and how many completions may fail. 0 is no goal.
type Goal struct {
	TTFT   time.Duration `mapstructure:"ttft"`   // until the first token
	TPOT   time.Duration `mapstructure:"tpot"`   // between two tokens
	Errors float64       `mapstructure:"errors"` // the share of the completions, over a month
}

// GoalOf returns the goal in force.
func GoalOf(s *Snapshot) Goal { return s.goal }

// Health bounds what failures do to a backend.
type Health struct {
	// EjectAfter failed legs in a row eject a backend. With 0, nothing ejects a backend.
	EjectAfter int `mapstructure:"eject_after"`
	// EjectFor is the length of a first ejection. The n-th ejection in a row lasts n times as long, up
	// to EjectMax.
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
	// ProgressFloor and ProgressCeiling bound how long an engine may give nothing although it owes answers, until it is
	// wedged. In between it is three times the usual. A floor of 0 is off. WedgedDownAfter is the time until a wedged engine
	// is down and its streams end.
	ProgressFloor   time.Duration `mapstructure:"progress_floor"`
	ProgressCeiling time.Duration `mapstructure:"progress_ceiling"`
	WedgedDownAfter time.Duration `mapstructure:"wedged_down_after"`
	// SlowAfter is how long an engine works at a third of its peers' speed or less before it is slow; 0 is off. SlowEject
	// ejects slow engines.
	SlowAfter time.Duration `mapstructure:"slow_after"`
	SlowEject bool          `mapstructure:"slow_eject"`
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
			ProgressFloor: 4500 * time.Millisecond, ProgressCeiling: 2 * time.Minute, WedgedDownAfter: 15 * time.Second,
			SlowAfter: time.Minute,
		},
		Goal:    Goal{TTFT: 10 * time.Second, TPOT: 200 * time.Millisecond, Errors: 0.001},
		Routing: Routing{Poll: time.Second, PrefixMemory: 64 << 20, PrefixBlock: defaultPrefixBlock, KVEventsMemory: 64 << 20},
	}
}
