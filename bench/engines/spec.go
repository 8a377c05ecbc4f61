// Package engines watches the engines behind a benchmark through their own metrics. It prints a line
// now and then, as vLLM logs it, and records by how much their counters grew over the run.
package engines

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// The roles of engines. An engine that does both has none.
const (
	Prefill = "prefill"
	Decode  = "decode"
)

// Spec names an engine.
type Spec struct {
	Name string
	Role string // Prefill, Decode, or "" for an engine that does both
	URL  string
	GPUs float64 // 0: not known
}

// The names that imply a role: P, P2, prefill-0; D, D2, decode-0.
var (
	prefillName = regexp.MustCompile(`^(?i:p[-_]?\d*|prefill.*)$`)
	decodeName  = regexp.MustCompile(`^(?i:d[-_]?\d*|decode.*)$`)
)

// Parse reads NAME=URL or NAME:GPUS=URL, as in P=http://10.0.0.1:8100 or D2:4=http://….
func Parse(text string) (Spec, error) {
	name, gpus, address, err := SplitTarget(text)
	if err != nil {
		return Spec{}, err
	}
	s := Spec{Name: name, GPUs: gpus, URL: address}
	switch {
	case prefillName.MatchString(name):
		s.Role = Prefill
	case decodeName.MatchString(name):
		s.Role = Decode
	}
	return s, nil
}

// SplitTarget reads NAME=URL or NAME:GPUS=URL, and returns the URL without a slash at its end.
func SplitTarget(text string) (name string, gpus float64, address string, err error) {
	left, address, ok := strings.Cut(text, "=")
	name, weight, weighted := strings.Cut(left, ":")
	if !ok || name == "" {
		return "", 0, "", fmt.Errorf("%q: want NAME=URL or NAME:GPUS=URL", left)
	}
	if weighted {
		if gpus, err = strconv.ParseFloat(weight, 64); err != nil || !(gpus > 0 && gpus < 1e6) {
			return "", 0, "", fmt.Errorf("%q: the GPUs of %s: want a number above 0", left, name)
		}
	}
	if err := CheckURL(address); err != nil {
		return "", 0, "", fmt.Errorf("%q: %w", name, err)
	}
	return name, gpus, strings.TrimSuffix(strings.TrimSuffix(address, "/"), "/v1"), nil
}

// CheckURL reports why an address cannot be a server's.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err == nil && u.User != nil: // every saved run would show it
		return errors.New("the URL has a user or a password: want http://host:port")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("URL %q: want http://host:port", address)
	}
	return nil
}
