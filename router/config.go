package router

// Config names the pools. Package main has validated it: every URL is
// http://host:port, no URL stands twice in a pool, policies are known.
type Config struct {
	// Prefill and Decode are base URLs. An empty Prefill makes a plain balancer
	// over Decode.
	Prefill []string `mapstructure:"prefill"`
	Decode  []string `mapstructure:"decode"`
	// PrefillPolicy and DecodePolicy are names out of Policies.
	PrefillPolicy string `mapstructure:"prefill_policy"`
	DecodePolicy  string `mapstructure:"decode_policy"`
}

// DefaultConfig has empty pools and least_request on both sides.
func DefaultConfig() Config {
	return Config{PrefillPolicy: "least_request", DecodePolicy: "least_request"}
}

// Policies lists the names that PrefillPolicy and DecodePolicy accept.
func Policies() []string { return []string{"least_request", "round_robin"} }
