package migrate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// given has the words of each flag on a command line. A switch that is on has the word "true".
type given map[string][]string

// word returns the last word of the flag, or def if it is not given.
func (g given) word(flag, def string) string {
	if words := g[flag]; len(words) > 0 {
		return words[len(words)-1]
	}
	return def
}

// read returns the flag's last word, or def, after value has converted it.
func (g given) read(flag, def string, value func(string) (string, error)) (string, error) {
	text, err := value(g.word(flag, def))
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	return text, nil
}

// from names the flags that are given, for the comment of a setting.
func (g given) from(flags ...string) string {
	var names []string
	for _, f := range flags {
		switch {
		case g.has(f):
			names = append(names, "--"+f)
		case g.has(off(f)):
			names = append(names, "--"+f+"=false")
		}
	}
	if names == nil {
		return "its default"
	}
	return strings.Join(names, ", ")
}

// has reports whether the flag is given. A switch that is turned off counts as not given.
func (g given) has(flag string) bool {
	_, ok := g[flag]
	return ok
}

// parse reads args by the router's rules.
func (r router) parse(args []string) (given, error) {
	found, last := given{}, ""
	for len(args) > 0 {
		name, inline, hasInline := strings.Cut(args[0], "=")
		flag := strings.TrimLeft(name, "-")
		if flag == name && last == "" {
			return nil, errors.New("its command line must begin with a flag")
		}
		if flag == name { // the word is not shown, because it may be a key
			return nil, fmt.Errorf("--%s has one value too many", last)
		}
		i := slices.IndexFunc(r.rules, func(rule rule) bool { return rule.flag == flag })
		if i < 0 {
			return nil, fmt.Errorf("it has no flag --%s", flag)
		}
		last = flag
		rest := args[1:]
		if hasInline {
			rest = append([]string{inline}, rest...)
		}
		used, err := found.take(r.rules[i], rest, hasInline)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		args = rest[used:]
	}
	return found, nil
}

// take adds the words of the rule's flag and returns how many it used. inline says that the first one
// came with the flag, as in --flag=word.
func (g given) take(r rule, rest []string, inline bool) (used int, err error) {
	switch r.takes {
	case none:
		return g.takeSwitch(r.flag, rest, inline)
	case many:
		if inline {
			used = 1
		}
		for used < len(rest) && !strings.HasPrefix(rest[used], "-") {
			used++
		}
		g[r.flag] = append(g[r.flag], rest[:used]...)
		return used, nil
	}
	if len(rest) == 0 || !inline && strings.HasPrefix(rest[0], "--") {
		return 0, errors.New("a value is missing")
	}
	g[r.flag] = append(g[r.flag], rest[0])
	if r.takes != target {
		return 1, nil
	}
	port := ""
	if len(rest) > 1 && isBootstrap(rest[1]) {
		used, port = 1, rest[1]
	}
	g[ports(r.flag)] = append(g[ports(r.flag)], port)
	return used + 1, nil
}

func (g given) takeSwitch(flag string, rest []string, inline bool) (used int, err error) {
	on := true
	if inline {
		if on, err = strconv.ParseBool(rest[0]); err != nil {
			return 0, fmt.Errorf("%q must be true or false", rest[0])
		}
		used = 1
	}
	delete(g, flag)
	delete(g, off(flag))
	if !on {
		flag = off(flag)
	}
	g[flag] = []string{"true"}
	return used, nil
}

// off is the name under which given has a switch that is turned off.
func off(flag string) string { return "no-" + flag }

// ports is the name under which given has the word after each URL of a target, or "".
func ports(flag string) string { return flag + " ports" }

// engines returns the URLs of a target, with their bootstrap ports.
func (g given) engines(flag string) (all []string) {
	for i, url := range g[flag] {
		if port := g[ports(flag)][i]; port != "" && !strings.EqualFold(port, "none") {
			url += " bootstrap=" + port
		}
		all = append(all, url)
	}
	return all
}

// isBootstrap reports whether the word after the URL of a prefill engine is its bootstrap port. NIXL
// engines have none.
func isBootstrap(word string) bool {
	_, err := strconv.ParseUint(word, 10, 16)
	return err == nil || strings.EqualFold(word, "none")
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
