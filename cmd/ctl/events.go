package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"xpyd/engines/journal"
)

// followEvery is the time between two questions of Follow.
const followEvery = time.Second

// eventPage is the answer to GET /events.
type eventPage struct {
	Started float64         `json:"started"`
	Last    uint64          `json:"last"`
	Events  []journal.Event `json:"events"`
}

func (c *Client) eventPage(ctx context.Context, since string) (p eventPage, err error) {
	_, err = c.call(ctx, http.MethodGet, "/events?since="+url.QueryEscape(since), nil, &p)
	return p, err
}

// Events prints the changes of state after since, which is the number of an event, or how long ago. With follow it goes on
// until ctx ends, also over the end of the process that it asks.
func (c *Client) Events(ctx context.Context, w io.Writer, since string, asJSON, follow bool) error {
	p, err := c.eventPage(ctx, since)
	if err != nil {
		return err
	}
	for {
		for _, e := range p.Events {
			if err := printEvent(w, e, asJSON); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		next, err := c.laterPage(ctx, p)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			p = next
			continue
		}
		p.Events = nil // nobody answers, perhaps until another process has the port
	}
}

// laterPage waits a moment and asks for what came after p. Another process numbers its events anew.
func (c *Client) laterPage(ctx context.Context, p eventPage) (next eventPage, err error) {
	select {
	case <-ctx.Done():
		return p, ctx.Err()
	case <-time.After(followEvery):
	}
	if next, err = c.eventPage(ctx, fmt.Sprint(p.Last)); err == nil && next.Started != p.Started {
		return c.eventPage(ctx, "0")
	}
	return next, err
}

func printEvent(w io.Writer, e journal.Event, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(e)
	}
	_, err := fmt.Fprintln(w, eventLine(e))
	return err
}

// eventLine is the event for people: when, what, which engine, why, and who did it.
func eventLine(e journal.Event) string {
	words := []string{time.UnixMilli(int64(e.Time * 1e3)).Format(time.DateTime), fmt.Sprintf("%-11s", e.Kind)}
	for _, word := range []string{e.Role, e.Backend} {
		if word != "" {
			words = append(words, word)
		}
	}
	line := strings.Join(words, " ")
	if e.Partner != "" {
		line += " with " + e.Partner
	}
	text := e.Text
	switch {
	case e.Reason != "" && e.Backend != "":
		text = e.Reason
	case e.Reason != "":
		text += ": " + e.Reason
	case e.Change != "" && e.Backend != "":
		text = e.Change
	case e.Change != "":
		text += ": " + e.Change
	}
	if e.Kind != journal.Up {
		line += ": " + text
	}
	if e.By != "" {
		line += " (" + e.By + ")"
	}
	return plain(line)
}
