package router

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// BaseURL rewrites the URL of a backend to scheme://host:port/prefix, with the rank if it names one. Its error text
// follows the value as ShowURL shows it.
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
	return JoinRank(u.Scheme+"://"+net.JoinHostPort(strings.ToLower(u.Hostname()), port)+prefixOf(u), rank), nil
}

// prefixOf is what the paths of all requests to the backend begin with, as where one host has several engines.
func prefixOf(u *url.URL) string { return strings.TrimSuffix(u.EscapedPath(), "/") }

// prefixes matches the paths of base URLs. All servers read these bytes alike.
var prefixes = regexp.MustCompile(`^(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?$`)

// portLike reports whether what stands before @ may be a host and its port, not a user and a password.
func portLike(before *url.Userinfo) bool {
	port, _ := before.Password()
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// urlFault says why u cannot be the base URL of a backend. It returns "" if nothing is wrong.
func urlFault(u *url.URL, example string) string {
	port, err := strconv.Atoi(u.Port())
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "must start with http:// or https://; try " + example
	case u.User != nil && u.Port() == "" && portLike(u.User):
		if _, _, several := strings.Cut(u.Host, ".."); several {
			return "must have one rank or auto after @ here, and must hold no user or password"
		}
		return "must have a rank, a range such as 0..7, or auto after @, and must hold no user or password"
	case u.User != nil:
		return "must hold no user or password; use --backend-api-key-file"
	case u.Hostname() == "":
		return "lacks a host; try " + example
	case strings.HasSuffix(u.Host, ":"), u.Port() != "" && (err != nil || port < 1 || port > 65535):
		return "must have a port from 1 to 65535; try " + example
	case u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return "must have no query and no fragment; the routes are added"
	case !prefixes.MatchString(u.EscapedPath()):
		return "must have a path of letters, digits and -._~ between single slashes, or none; try " + example + "/vllm-a"
	case strings.HasSuffix(prefixOf(u), "/v1"):
		return "must end before /v1; the routes are added"
	default:
		return ""
	}
}

// ranked matches host and port before an @ and what is meant as a rank, even if it is none, such as 0..x. A host that
// may stand there, after a user and a password, does not match.
var ranked = regexp.MustCompile(`(?i)(?:^|@)((?:\[[0-9a-f:.]+\]|[\w.-]+):\d{1,5}@(?:auto|-?\d|\.\.)[^.:/?#@]*(?:\.\.[^.:/?#@]*)?/?)$`)

// ShowURL removes the parts of a URL, or of a host and port, that may be secret: user, password and
// query. It shows the rest as it is written.
func ShowURL(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		scheme, rest = "", raw
	}
	if m := ranked.FindStringSubmatch(rest); m != nil {
		rest = m[1]
	} else if !rankOfURL(raw) {
		rest = rest[strings.LastIndexByte(rest, '@')+1:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	if !ok {
		return rest
	}
	return scheme + "://" + rest
}

// rankOfURL reports whether raw is the URL of a rank. It may lack a port.
func rankOfURL(raw string) bool {
	engine, rank := SplitRank(raw)
	if rank == NoRank || !strings.Contains(raw, "://") {
		return false
	}
	_, err := BaseURL(engine)
	return err == nil
}
