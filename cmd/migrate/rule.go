package migrate

import (
	"fmt"
	"strconv"
	"strings"
)

// arity is how many words follow a flag.
type arity int

const (
	none   arity = iota // a switch. --flag=false turns it off
	one                 // the last one counts if the flag is repeated
	many                // all words up to the next flag
	target              // a URL, and then a port or "none" if the next word is one
)

// rule says what becomes of a flag. If it has neither value nor why, the router's fit reads the flag.
type rule struct {
	flag  string // without the dashes
	takes arity
	// key is the setting for the flag, and value turns the flag's word into YAML.
	key   string
	value func(word string) (string, error)
	// why is the reason for having no setting.
	why string
}

// read makes rules for flags that the router's fit reads.
func read(takes arity, flags ...string) (rules []rule) {
	for _, f := range flags {
		rules = append(rules, rule{flag: f, takes: takes})
	}
	return rules
}

// without makes rules for flags that have no setting, all for the same reason.
func without(why string, takes arity, flags ...string) (rules []rule) {
	for _, f := range flags {
		rules = append(rules, rule{flag: f, takes: takes, why: why})
	}
	return rules
}

// seconds reads a whole number of seconds.
func seconds(word string) (string, error) { return withUnit(word, "s", "seconds") }

func withUnit(word, unit, name string) (string, error) {
	if _, err := count(word); err != nil {
		return "", fmt.Errorf("%q must be a whole number of %s", word, name)
	}
	return word + unit, nil
}

// count reads a whole number.
func count(word string) (string, error) {
	if _, err := strconv.Atoi(word); err != nil {
		return "", fmt.Errorf("%q must be a whole number", word)
	}
	return word, nil
}

// asWritten takes a word as it is.
func asWritten(word string) (string, error) { return strconv.Quote(word), nil }

// oneOf makes a reader that turns a name into xpyd's value for it.
func oneOf(names map[string]string) func(string) (string, error) {
	return func(word string) (string, error) {
		if to, ok := names[word]; ok {
			return to, nil
		}
		return "", fmt.Errorf("%q is none of %s", word, strings.Join(sorted(names), ", "))
	}
}

// logLevels reads a level. Python's critical is xpyd's error, and its trace xpyd's debug.
func logLevels(word string) (string, error) {
	return oneOf(map[string]string{
		"trace": "debug", "debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error", "critical": "error",
	})(word)
}
