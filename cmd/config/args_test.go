package config

import (
	"errors"
	"testing"
	"time"
)

// Flags alone make a configuration, even without pools.
func TestFromArgs(t *testing.T) {
	cfg, err := FromArgs([]string{"--prefill-policy", "power_of_two", "--timeouts-dial=3s"})
	if err != nil || cfg.Router.PrefillPolicy != "power_of_two" || cfg.Timeouts.Dial != 3*time.Second {
		t.Errorf("error %v, policy %q, dial %v", err, cfg.Router.PrefillPolicy, cfg.Timeouts.Dial)
	}
	for _, args := range [][]string{{"--prefill-policy", "nearest"}, {"--no-such-flag"}, {"extra"}} {
		var usage UsageError
		if _, err := FromArgs(args); !errors.As(err, &usage) {
			t.Errorf("%q: error %v is no usage error", args, err)
		}
	}
}
