// Package migrate turns the command lines of other routers into a configuration of xpyd. Each router
// has a file of its own with a table of its flags.
package migrate

import (
	"fmt"
	"slices"
	"strings"
)

// router is another router's command line.
type router struct {
	name string
	// about begins every configuration made for the router. It tells users what no flag says, and may
	// be empty.
	about string
	rules []rule
	// fit makes the settings that take more than one flag: addresses, pools and policies.
	fit func(given, *plan) error
	// skip has the words that may come before the first flag.
	skip []string
}

func routers() []router {
	return []router{vllmRouter(), sglangRouter(), smg(), toy(), epdProxy(), llmdSidecar(), productionStack()}
}

// Routers returns the names of the routers whose flags are known.
func Routers() (names []string) {
	for _, r := range routers() {
		names = append(names, r.name)
	}
	return names
}

// YAML returns the configuration that does what args make the named router do, with a comment for each
// flag that has no equivalent. It does not check the values, since reading the configuration does. A
// flag that the router does not have is an error.
func YAML(name string, args []string) ([]byte, error) {
	all := routers()
	i := slices.IndexFunc(all, func(r router) bool { return r.name == name })
	if i < 0 {
		return nil, fmt.Errorf("%q is no router whose flags are known; give one of %s", name, strings.Join(Routers(), ", "))
	}
	r := all[i]
	if len(args) > 0 && slices.Contains(r.skip, args[0]) {
		args = args[1:]
	}
	values, err := r.parse(args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &plan{}
	if err := r.fill(values, p); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p.yaml(r), nil
}

// fill adds the settings of fit, and then those of single flags.
func (r router) fill(values given, p *plan) error {
	if err := r.fit(values, p); err != nil {
		return err
	}
	for _, rule := range r.rules {
		switch {
		case !values.has(rule.flag):
		case rule.why != "":
			p.note(rule.flag, rule.why)
		case rule.value != nil:
			text, err := values.read(rule.flag, "", rule.value)
			if err != nil {
				return err
			}
			p.set(rule.key, text, "--"+rule.flag)
		}
	}
	for _, rule := range r.rules {
		if values.has(rule.flag) && !p.names(rule.flag) {
			p.note(rule.flag, "it changes nothing beside the other flags")
		}
	}
	return nil
}
