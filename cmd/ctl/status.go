package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"xpyd/router"
)

// Backend is an entry of GET /backends, as far as it is printed.
type Backend struct {
	Role        string  `json:"role"`
	URL         string  `json:"url"`
	State       string  `json:"state"`
	AdminState  string  `json:"admin_state"`
	BothRoles   bool    `json:"both_roles"`
	Drained     bool    `json:"drained"`
	Version     string  `json:"version"`
	Connector   string  `json:"connector"`
	Weight      float64 `json:"weight"`
	InFlight    int64   `json:"in_flight"`
	Handles     int64   `json:"handles"`
	EjectedFor  float64 `json:"ejected_for"` // seconds
	EjectReason string  `json:"eject_reason"`
	Since       float64 `json:"since"` // Unix seconds
	Reason      string  `json:"reason"`
	By          string  `json:"by"`
	Engine      *struct {
		Running *int64   `json:"running"`
		Waiting *int64   `json:"waiting"`
		KVUsage *float64 `json:"kv_usage"`
	} `json:"engine"`
}

// Leaving is a backend that was removed, or has the other role now, and still serves what it has.
type Leaving struct {
	URL      string `json:"url"`
	Role     string `json:"role"`
	InFlight int64  `json:"in_flight"`
	Handles  int64  `json:"handles"`
}

// Status is what GET /readyz and GET /backends tell.
type Status struct {
	Ready     bool
	Readiness string // the line of /readyz
	Backends  []Backend
	Leaving   []Leaving
	Edits     int // that differ from the configuration
	KeptIn    string

	admin string // the URL of the admin port
	page  map[string]json.RawMessage
}

// Status asks for it.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	s.admin = c.base
	s.Readiness, s.Ready, err = c.readiness(ctx)
	if err != nil {
		return s, err
	}
	if _, err := c.call(ctx, http.MethodGet, "/backends", nil, &s.page); err != nil {
		return s, err
	}
	var changes struct {
		Edits  []json.RawMessage `json:"edits"`
		KeptIn string            `json:"kept_in"`
	}
	for _, part := range []struct {
		name string
		into any
	}{{"backends", &s.Backends}, {"leaving", &s.Leaving}, {"changes", &changes}} {
		if raw := s.page[part.name]; raw != nil {
			err = errors.Join(err, json.Unmarshal(raw, part.into))
		}
	}
	s.Edits, s.KeptIn = len(changes.Edits), changes.KeptIn
	return s, err
}

// readiness returns the line of /readyz.
func (c *Client) readiness(ctx context.Context) (line string, ready bool, err error) {
	status, text, err := c.exchange(ctx, http.MethodGet, "/readyz", nil)
	if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
		err = fmt.Errorf("GET /readyz: status %d; is this the admin port of xpyd?", status)
	}
	return strings.TrimSpace(string(text)), status == http.StatusOK, err
}

// PrintJSON writes GET /backends as one object, with ready and readiness.
func (s Status) PrintJSON(w io.Writer) error {
	page := map[string]any{"ready": s.Ready, "readiness": s.Readiness, "admin": s.admin}
	for name, raw := range s.page {
		page[name] = raw
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(page)
}

// Print writes a table for people.
func (s Status) Print(w io.Writer) error {
	var b strings.Builder
	b.WriteString(s.Readiness + "\n\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ROLE\tBACKEND\tSTATE\tSINCE\tWEIGHT\tIN FLIGHT\tHANDLES\tRUNNING\tWAITING\tKV USE\tVERSION\tWHY")
	prefills := map[string]Backend{} // of the engines without a role, which have one line
	for _, e := range s.Backends {
		inFlight := strconv.FormatInt(e.InFlight, 10)
		if p := prefills[e.URL]; e.BothRoles && e.Role == router.Prefill.String() {
			prefills[e.URL] = e
			continue
		} else if e.BothRoles {
			e.Role, e.Handles, inFlight = router.Both.String(), p.Handles, fmt.Sprintf("%d+%d", p.InFlight, e.InFlight)
			e.Drained = e.Drained && p.Drained
		}
		running, waiting, kv := "-", "-", "-"
		if e.Engine != nil {
			running, waiting = count(e.Engine.Running), count(e.Engine.Waiting)
			if e.Engine.KVUsage != nil {
				kv = fmt.Sprintf("%.0f%%", 100**e.Engine.KVUsage)
			}
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%v\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n",
			e.Role, e.URL, e.states(), sinceWhen(e.Since), e.Weight, inFlight, e.Handles, running, waiting, kv, orDash(e.Version), orDash(e.why()))
	}
	for _, l := range s.Leaving {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t-\t-\t%d\t%d\t-\t-\t-\t-\t-\n", l.Role, l.URL, "leaving", l.InFlight, l.Handles)
	}
	_ = t.Flush() // a Builder takes all
	if s.Edits > 0 {
		kept := "kept until the process ends"
		if s.KeptIn != "" {
			kept = "kept in " + s.KeptIn
		}
		fmt.Fprintf(&b, "\n%s, %s\n", counted(int64(s.Edits), "run-time change"), kept)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// states says in words how the backend is.
func (e Backend) states() string {
	words := []string{e.State}
	switch {
	case e.AdminState == "drain" && e.Drained:
		words = append(words, "drained")
	case e.AdminState == "drain":
		words = append(words, "draining")
	case e.AdminState == "disabled":
		words = append(words, "disabled")
	}
	if e.EjectedFor > 0 {
		words = append(words, fmt.Sprintf("ejected for %.0f s (%s)", e.EjectedFor, e.EjectReason))
	}
	if e.Connector != "" {
		words = append(words, "connector "+e.Connector)
	}
	return strings.Join(words, ", ")
}

// why says why the backend is as it is, and who wants it so.
func (e Backend) why() string {
	if e.By == "" {
		return e.Reason
	}
	return e.Reason + " (" + e.By + ")"
}

// sinceWhen is a moment of today as a time, and an older one as a date.
func sinceWhen(at float64) string {
	switch t := time.UnixMilli(int64(at * 1e3)); {
	case at == 0:
		return "-"
	case time.Since(t) < 20*time.Hour:
		return t.Format(time.TimeOnly)
	default:
		return t.Format(time.DateOnly)
	}
}

func count(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// waitEvery is the time between two questions of Drained and Gone.
const waitEvery = 200 * time.Millisecond

// Drained waits until the backend, which is not ready, has ended its requests and handles.
func (c *Client) Drained(ctx context.Context, url string) error {
	return c.await(ctx, url+" has not drained", func(s Status) (bool, error) {
		known, drained := false, true
		for _, b := range s.Backends {
			if !router.PartOf(b.URL, url) {
				continue
			}
			if b.AdminState == "ready" {
				return false, fmt.Errorf("%s was made ready meanwhile", b.URL)
			}
			known, drained = true, drained && b.Drained
		}
		if !known {
			return false, fmt.Errorf("%s was removed meanwhile", url)
		}
		return drained, nil
	})
}

// Gone waits until nothing is left of what the backend had when it was removed, or got another role.
func (c *Client) Gone(ctx context.Context, url string) error {
	return c.await(ctx, url+" still serves requests", func(s Status) (bool, error) {
		return !slices.ContainsFunc(s.Leaving, func(l Leaving) bool { return router.PartOf(l.URL, url) && l.InFlight+l.Handles > 0 }), nil
	})
}

func (c *Client) await(ctx context.Context, otherwise string, done func(Status) (bool, error)) error {
	for {
		s, err := c.Status(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", otherwise, context.Cause(ctx))
		}
		if err != nil {
			return err
		}
		if over, err := done(s); over || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(waitEvery):
		}
	}
}
