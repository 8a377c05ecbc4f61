// Package verify asks a running deployment two things: does it disaggregate, and are its answers
// right? It sends requests of its own through the proxy and to a decode engine alone, compares the
// answers, and reads what the engines count. It does not judge what other traffic makes undecidable.
package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"xpyd/kvparams"
)

// Options name the deployment.
type Options struct {
	URL             string   // of the proxy, without /v1
	Prefill, Decode []string // base URLs of the engines, each once and without ranks
	Encode          []string // those of the encode engines, if there are any
	Admin           string   // base URL of xpyd's admin port; "" leaves its row out
	Model           string   // "": the first that all engines list
	Connector       string   // xpyd's name or the engines' own; its releases are compared with those that ran

	Key        string // bearer token for the proxy; "" for none
	EngineKey  string // bearer token for the engines
	AdminToken string // bearer token for the admin port
	Insecure   bool   // accept any certificate

	Lease   time.Duration // kv.lease of the proxy
	Settle  time.Duration // after a client leaves, the time within which blocks must be free
	Timeout time.Duration // of one request
	GBps    float64       // the least speed of KV transfers, kv.transfer_gbps of the proxy; 0: not known
	Skip    []string      // names of rows

	Done func(Row) // called with each row once it is decided; may be nil
}

// State is the verdict of a row.
type State string

// The states of a row.
const (
	OK      State = "ok"
	Fail    State = "FAIL"
	Unknown State = "unknown"
)

// Row is one thing that was verified.
type Row struct {
	Check  string `json:"check"`
	State  State  `json:"state"`
	Detail string `json:"detail"` // why, and what was measured; never a part of a prompt or an answer
}

// check makes one row.
type check struct {
	name string
	run  func(*run, context.Context) Row
}

// checks are the rows in their order. The lease comes last because it holds blocks of the prefill
// engines for as long as it takes.
func checks() []check {
	all := []check{
		{"engines", (*run).engines},
		{"path", (*run).path},
		{"request id", (*run).requestID},
		{"prefill", (*run).prefill},
		{"pull", (*run).pull},
		{"transport", transport},
	}
	for _, c := range comparisons() {
		all = append(all, check{c.name, func(r *run, ctx context.Context) Row { return r.compare(ctx, c) }})
	}
	return append(all,
		check{"encode", (*run).encode},
		check{"EOS first", (*run).endsAtOnce},
		check{"client leaves", (*run).clientLeaves},
		check{"rejected", (*run).rejected},
		check{"handles", (*run).handles},
		check{"lease", (*run).lease},
	)
}

// Names lists the rows.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// Validate reports the first option that makes no sense.
func (o Options) Validate() error {
	for _, u := range slices.Concat([]string{o.URL, o.Admin}, o.Encode, o.Prefill, o.Decode) {
		if u != "" && !strings.HasPrefix(u, "http://") && !strings.HasPrefix(u, "https://") {
			return fmt.Errorf("URL %q: want http://host:port", u)
		}
	}
	for _, s := range o.Skip {
		if !slices.Contains(Names(), s) {
			return fmt.Errorf("--skip %q: want some of %s", s, strings.Join(Names(), ", "))
		}
	}
	if _, ok := kvparams.Lookup(kvparams.Canonical(o.Connector)); !ok {
		return fmt.Errorf("--connector %q: want one of %s", o.Connector, strings.Join(kvparams.Names(), ", "))
	}
	switch {
	case o.URL == "":
		return errors.New("--url: want http://host:port")
	case len(o.Prefill) == 0:
		return errors.New("--prefill: name the prefill engines, or there is nothing to verify")
	case len(o.Decode) == 0:
		return errors.New("--decode: name the decode engines")
	case !(o.GBps >= 0):
		return errors.New("--transfer-gbps: want 0 or more")
	case o.Lease <= 0 || o.Settle <= 0 || o.Timeout <= 0:
		return errors.New("--kv-lease, --settle, --timeout: want more than 0")
	}
	return nil
}

// Run decides all rows, one after the other. It returns an error only if ctx ends.
func Run(ctx context.Context, o Options) ([]Row, error) {
	r := newRun(o)
	defer r.http.CloseIdleConnections()
	if o.Admin != "" {
		r.handed, _ = r.ends(ctx) // the row handles meets the same failure and reports it
	}
	var rows []Row
	for _, c := range checks() {
		skip := slices.Contains(o.Skip, c.name) || c.name == "handles" && o.Admin == "" || c.name == "encode" && len(o.Encode) == 0 || c.name == "transport" && o.GBps == 0
		if skip && c.name != "engines" { // engines also finds the model
			continue
		}
		row := c.run(r, ctx)
		if row.busy() && r.patience > quietAgain { // a request of the row before may end late
			row = c.run(r, ctx)
		}
		if err := context.Cause(ctx); err != nil {
			return rows, fmt.Errorf("interrupted in the row %q: %w", c.name, err)
		}
		if skip {
			continue
		}
		row.Check = c.name
		rows = append(rows, row)
		if o.Done != nil {
			o.Done(row)
		}
	}
	return rows, nil
}

// Verdict is an error unless every row is ok.
func Verdict(rows []Row) error {
	count := map[State]int{}
	for _, row := range rows {
		count[row.State]++
	}
	switch {
	case count[Fail] > 0:
		return fmt.Errorf("verify: %d of %d rows FAIL", count[Fail], len(rows))
	case count[Unknown] > 0:
		return fmt.Errorf("verify: %d of %d rows are not decided", count[Unknown], len(rows))
	}
	return nil
}

func good(format string, args ...any) Row {
	return Row{State: OK, Detail: fmt.Sprintf(format, args...)}
}
func bad(format string, args ...any) Row {
	return Row{State: Fail, Detail: fmt.Sprintf(format, args...)}
}

// open is a row that cannot be decided.
func open(format string, args ...any) Row {
	return Row{State: Unknown, Detail: fmt.Sprintf(format, args...)}
}

// busy reports that other requests came in between.
func (r Row) busy() bool { return r.State == Unknown && strings.HasPrefix(r.Detail, busyLead) }

// undecided is an error that leaves a row open: an engine that does not answer alone, or other
// traffic.
type undecided struct{ error }

func (u undecided) Unwrap() error { return u.error }

// failed is the row of an error.
func failed(err error) Row {
	var u undecided
	if errors.As(err, &u) {
		return open("%v", err)
	}
	return bad("%v", err)
}
