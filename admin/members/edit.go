// Package members changes the pools while the process runs. What is in force is the configuration
// with the edits that operators have made since. A reload keeps the edits that still apply, and a
// state file keeps them over the end of the process.
package members

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"xpyd/router"
)

// Edit is what operators have changed about one backend. An empty field is as configured.
type Edit struct {
	URL     string            `json:"url"`
	Added   bool              `json:"added,omitempty"`   // the configuration does not have it
	Removed bool              `json:"removed,omitempty"` // the configuration has it
	Role    string            `json:"role,omitempty"`
	State   router.AdminState `json:"state,omitempty"`
	Weight  float64           `json:"weight,omitempty"`
	GPUs    float64           `json:"gpus,omitempty"`
	// Bootstrap and Connector are given only where a backend is added.
	Bootstrap int    `json:"bootstrap,omitempty"`
	Connector string `json:"connector,omitempty"`
	// By is who changed the state, and At when, in Unix seconds. They say nothing about the backend itself.
	By string `json:"by,omitempty"`
	At int64  `json:"at,omitempty"`
}

// settings returns the edit without who made it.
func (e Edit) settings() Edit {
	e.By, e.At = "", 0
	return e
}

// roleOf returns the role with that name.
func roleOf(name string) (role router.Role, ok bool) {
	for _, role := range router.EntryRoles() {
		if role.String() == name {
			return role, true
		}
	}
	return 0, false
}

// find returns the index of the URL, or −1.
func find(all []router.Entry, url string) int {
	return slices.IndexFunc(all, func(p router.Entry) bool { return p.URL == url })
}

// edited puts the edits on the entries. It returns those that say something, and the rest, which have no entry.
func edited(all []router.Entry, edits []Edit) (now []router.Entry, kept, rest []Edit) {
	for _, e := range edits {
		i := find(all, e.URL)
		switch {
		case e.Added && i < 0 && wholeOf(all, e.URL) < 0:
			all = append(all, e.on(router.Entry{URL: e.URL, State: router.Ready}))
		case i < 0:
			rest = append(rest, e)
			continue
		case e.Removed:
			all = slices.Delete(all, i, i+1)
		default:
			if e = e.beside(all[i]); e == (Edit{URL: e.URL}) {
				continue // the configuration says the same by now
			}
			if e.Role != "" { // it goes to the end of its new pool
				moved := e.on(all[i])
				all = append(slices.Delete(all, i, i+1), moved)
			} else {
				all[i] = e.on(all[i])
			}
		}
		kept = append(kept, e)
	}
	return all, kept, rest
}

// beside returns the edit without what the configuration says itself.
func (e Edit) beside(p router.Entry) Edit {
	e.Added = false
	if e.Role == p.Role.String() {
		e.Role = ""
	}
	if e.State == p.State || e.State == "" {
		e.State, e.By, e.At = "", "", 0
	}
	if e.Weight == p.Weight {
		e.Weight = 0
	}
	if e.GPUs == p.GPUs {
		e.GPUs = 0
	}
	if e.Bootstrap == p.Bootstrap {
		e.Bootstrap = 0
	}
	if e.Connector == p.Connector {
		e.Connector = ""
	}
	return e
}

// on returns p as the edit makes it.
func (e Edit) on(p router.Entry) router.Entry {
	if role, ok := roleOf(e.Role); ok {
		p.Role = role
	}
	if e.State != "" {
		p.State = e.State
	}
	if e.GPUs > 0 {
		p.GPUs = e.GPUs
	}
	if e.Bootstrap > 0 {
		p.Bootstrap = e.Bootstrap
	}
	if e.Connector != "" {
		p.Connector = e.Connector
	}
	switch {
	case e.Weight > 0:
		p.Weight = e.Weight
	case p.Weight == 0:
		p.Weight = router.Entry{GPUs: p.GPUs}.OwnWeight()
	}
	return p
}

// check says what is wrong with an edit, whatever the pools are.
func (e Edit) check() error {
	if _, ok := roleOf(e.Role); e.Role != "" && !ok {
		return wrong("role: %q must be prefill, decode, both or encode", e.Role)
	}
	if e.State != "" && !slices.Contains(router.AdminStates(), e.State) {
		return wrong("state: %q must be ready, drain or disabled", e.State)
	}
	if e.Weight != 0 && !(e.Weight >= router.MinWeight && e.Weight <= router.MaxWeight) {
		return wrong("weight: %v must be from %v to %v", e.Weight, router.MinWeight, router.MaxWeight)
	}
	if e.GPUs != 0 && !(e.GPUs >= router.MinGPUs && e.GPUs <= router.MaxGPUs) {
		return wrong("gpus: %v must be from %v to %v", e.GPUs, router.MinGPUs, router.MaxGPUs)
	}
	if e.Bootstrap < 0 || e.Bootstrap > 65535 {
		return wrong("bootstrap: %d must be a port from 1 to 65535", e.Bootstrap)
	}
	if strings.ContainsFunc(e.Connector, unicode.IsSpace) {
		return wrong("connector: %q must be the name of one", e.Connector)
	}
	return nil
}

// String says for a log line what is changed.
func (e Edit) String() string {
	var words []string
	for _, field := range []struct {
		name  string
		value any
		set   bool
	}{
		{"role", e.Role, e.Role != ""}, {"state", e.State, e.State != ""},
		{"weight", e.Weight, e.Weight != 0}, {"gpus", e.GPUs, e.GPUs != 0}, {"bootstrap", e.Bootstrap, e.Bootstrap != 0},
		{"connector", e.Connector, e.Connector != ""},
	} {
		if field.set {
			words = append(words, fmt.Sprintf("%s %v", field.name, field.value))
		}
	}
	return strings.Join(words, ", ")
}
