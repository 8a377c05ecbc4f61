package main

import (
	"slices"
	"strings"
)

// row is one line of the matrix. what says in a few words what is injected and what
// must come of it. tests and alone are named PACKAGE.TEST, with subtests behind slashes as
// -v prints them; together they show all of what.
type row struct {
	id, what string
	tests    []string // of requests that have a prefill
	alone    []string // those that hold, too, where pd.mode spares requests the prefill
	choice   bool     // what must come of it turns on which backend is chosen
}

func (r row) all() []string { return slices.Concat(r.tests, r.alone) }

// directory of the package that a test's name begins with, relative to the module's root.
func directory(pkg string) (string, bool) {
	switch pkg {
	case "cmd", "daemon", "proxy", "router", "kvparams", "metrics", "sim", "bench":
		return "./" + pkg, true
	case "faultnet":
		return "./sim/faultnet", true
	}
	return "", false
}

// split takes a test's name apart.
func split(test string) (pkg, name string) {
	pkg, name, _ = strings.Cut(test, ".")
	return pkg, name
}

// testsOf lists the tests of all rows, each once.
func testsOf(rows []row) []string {
	var all []string
	for _, r := range rows {
		for _, t := range r.all() {
			if !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
	}
	return all
}

func packagesOf(tests []string) []string {
	var all []string
	for _, t := range tests {
		if pkg, _ := split(t); !slices.Contains(all, pkg) {
			all = append(all, pkg)
		}
	}
	return all
}
