package config

import (
	"testing"

	"github.com/spf13/pflag"
)

// Each name that other servers use leads to a flag that there is, and is no flag itself.
func TestOtherNamesLeadToFlags(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(flags)
	for theirs, ours := range otherNames {
		if flags.Lookup(theirs) != nil {
			t.Errorf("--%s is a flag", theirs)
		}
		if got := meant(flags, theirs); got != ours {
			t.Errorf("--%s leads to %q, want --%s", theirs, got, ours)
		}
	}
}
