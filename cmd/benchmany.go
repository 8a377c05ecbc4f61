package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// many is a flag that takes all arguments up to the next flag, as in --goodput ttft:200 tpot:50.
// pflag passes those after the first to the command. settle gives them back to the flag.
type many struct {
	set    *pflag.FlagSet
	values *[]string
	claims *[]claim
}

// claim says that the arguments from at on belong to a flag.
type claim struct {
	at int
	to *[]string
}

func (m many) Set(text string) error {
	*m.values = append(*m.values, text)
	*m.claims = append(*m.claims, claim{len(m.set.Args()), m.values})
	return nil
}

func (m many) String() string {
	if m.values == nil {
		return ""
	}
	return strings.Join(*m.values, " ")
}

func (many) Type() string { return "strings" }

func (f *benchFlags) manyVar(s *pflag.FlagSet, values *[]string, name, usage string) {
	s.Var(many{s, values, &f.claims}, name, usage)
}

// settle gives each argument to the flag that it follows.
func (f *benchFlags) settle(args []string) error {
	for i, arg := range args {
		var owner *[]string
		for _, c := range f.claims {
			if c.at <= i {
				owner = c.to
			}
		}
		if owner == nil {
			return fmt.Errorf("serve takes no argument, got %q; see xpyd bench serve --help", arg)
		}
		*owner = append(*owner, arg)
	}
	return nil
}

// pairs reads K=V texts. An error does not show the value, which may be a secret.
func pairs(flag string, texts []string) ([][2]string, error) {
	var all [][2]string
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("--%s %q: want K=V", flag, name)
		}
		all = append(all, [2]string{name, strings.TrimSpace(value)})
	}
	return all, nil
}
