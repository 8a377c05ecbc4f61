package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"xpyd/internal/nearest"
)

// EnvPrefix starts the name of every variable that xpyd reads.
const EnvPrefix = "XPYD_"

// serviceHost matches the variable that Kubernetes puts into every container of a namespace for
// each Service in it. A Service that is called xpyd collides with our prefix.
var serviceHost = regexp.MustCompile(`^(XPYD(?:_[A-Z0-9_]+)?)_SERVICE_HOST$`)

// strangeVariables finds the XPYD_ variables that name no key. A misspelt one is a setting that
// silently does nothing. But others may have put it there, as images do with XPYD_VERSION, so it is
// worth a warning and no more. It is an error if the variable was meant to ask clients for their
// keys, because without it the door would stand open.
func strangeVariables(keys []key, environ []string) (found []string, err error) {
	known := map[string]bool{EnvPrefix + "CONFIG": true}
	for _, k := range keys {
		known[k.env()] = true
	}
	var services []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if m := serviceHost.FindStringSubmatch(name); m != nil {
			services = append(services, m[1])
		}
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		short, ours := strings.CutPrefix(name, EnvPrefix)
		if !ours || known[name] || ofService(services, name) {
			continue
		}
		near := nearest.Name(short, shortNames(known))
		if strings.Contains(near, "API_KEY") && nearest.Distance(short, near) <= 2 {
			return nil, fmt.Errorf("the variable %s names no known key; %s", name, hint(EnvPrefix, near))
		}
		found = append(found, fmt.Sprintf("the variable %s names no known key and does nothing; %s", name, hint(EnvPrefix, near)))
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// shortNames returns the names of the variables without their common prefix.
func shortNames(known map[string]bool) (names []string) {
	for name := range known {
		names = append(names, strings.TrimPrefix(name, EnvPrefix))
	}
	return names
}

// ofService reports whether name is a NAME_SERVICE_HOST, NAME_SERVICE_PORT… or NAME_PORT… of a
// Kubernetes Service.
func ofService(services []string, name string) bool {
	return slices.ContainsFunc(services, func(s string) bool {
		rest, ok := strings.CutPrefix(name, s)
		return ok && (strings.HasPrefix(rest, "_SERVICE_") || rest == "_PORT" || strings.HasPrefix(rest, "_PORT_"))
	})
}

func lookupEnv(environ []string, name string) string {
	v, _ := findEnv(environ, name)
	return v
}

func findEnv(environ []string, name string) (string, bool) {
	for _, kv := range slices.Backward(environ) {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}

// hint says what an unknown name was probably meant for, if anything is near.
func hint(prefix, near string) string {
	if near == "" {
		return "xpyd serve --help lists all"
	}
	return "the nearest is " + prefix + near
}
