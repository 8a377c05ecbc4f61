package main

import "slices"

// row is one line of the matrix. what says in a few words what is injected and what must happen.
// tests and alone are names of tests, with subtests after slashes as -v prints them, in any package
// of the module. Together they show all of what.
type row struct {
	id, what string
	tests    []string // of requests that have a prefill
	alone    []string // those that also hold if pd.mode spares requests the prefill
	choice   bool     // the result depends on which backend is chosen
}

func (r row) all() []string { return slices.Concat(r.tests, r.alone) }

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
