package router

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// BaseURL rewrites the URL of a backend to scheme://host:port, with the rank if it names one. The text of its errors goes after the
// value, as ShowURL shows it.
func BaseURL(raw string) (string, error) {
	const example = "http://127.0.0.1:8100"
	if !strings.Contains(raw, "://") {
		return "", errors.New("must start with http:// or https://; try http://" + ShowURL(raw))
	}
	engine, rank := SplitRank(raw)
	u, err := url.Parse(engine)
	if err != nil {
		return "", errors.New("is no URL; try " + example)
	}
	if fix := urlFault(u, example); fix != "" {
		return "", errors.New(fix)
	}
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	base := u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	if rank != NoRank {
		base += "@" + strconv.Itoa(rank)
	}
	return base, nil
}

// urlFault says why u cannot be the base URL of a backend. It returns "" if nothing is wrong.
func urlFault(u *url.URL, example string) string {
	port, err := strconv.Atoi(u.Port())
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "must start with http:// or https://; try " + example
	case u.User != nil:
		return "must hold no user or password; use --backend-api-key-file"
	case u.Hostname() == "":
		return "lacks a host; try " + example
	case strings.HasSuffix(u.Host, ":"), u.Port() != "" && (err != nil || port < 1 || port > 65535):
		return "must have a port from 1 to 65535; try " + example
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return "must end after host and port; the routes are added"
	default:
		return ""
	}
}

// ShowURL cuts off what may be a secret in a URL: user, password and query.
func ShowURL(raw string) string {
	if engine, rank := SplitRank(raw); rank != NoRank && strings.Contains(raw, "://") {
		if base, err := BaseURL(engine); err == nil {
			return base + "@" + strconv.Itoa(rank) // what stands before the rank is host and port
		}
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		scheme, rest = "", raw
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	if !ok {
		return rest
	}
	return scheme + "://" + rest
}
