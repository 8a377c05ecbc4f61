package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// rig is what the checks know of the rest: the fleet that the runner has started. The addresses
// come from the environment.
type rig struct {
	url, key, admin string // of xpyd, without /v1
	victim          string // a second xpyd in front of the same engines, which a check kills
	victimPID       int
	prefill, decode []string
	// trusting is the transport of clients that trust the run's CA.
	trusting *http.Transport
}

func newRig() (rig, error) {
	pid, err := strconv.Atoi(os.Getenv("CLIENTS_VICTIM_PID"))
	if err != nil {
		return rig{}, fmt.Errorf("read CLIENTS_VICTIM_PID: %w", err)
	}
	ca, err := os.ReadFile(os.Getenv("CLIENTS_CA"))
	if err != nil {
		return rig{}, fmt.Errorf("read CLIENTS_CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return rig{}, fmt.Errorf("read CLIENTS_CA: no certificate in %s", os.Getenv("CLIENTS_CA"))
	}
	return rig{
		trusting: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		url:      os.Getenv("CLIENTS_URL"), key: os.Getenv("CLIENTS_KEY"), admin: os.Getenv("CLIENTS_ADMIN"),
		victim: os.Getenv("CLIENTS_VICTIM"), victimPID: pid,
		prefill: strings.Split(os.Getenv("CLIENTS_PREFILL"), ","),
		decode:  strings.Split(os.Getenv("CLIENTS_DECODE"), ","),
	}, nil
}

func (r rig) engines() []string { return append(append([]string{}, r.prefill...), r.decode...) }

// call gets url, or posts body to it.
func call(url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("call %s: %s", url, resp.Status)
	}
	return text, err
}

func getJSON(url string, into any) error {
	text, err := call(url, nil)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// fault makes every decode engine misbehave as text says. "" ends that.
func (r rig) fault(text string) error {
	body := []byte("{}")
	if text != "" {
		body = strconv.AppendQuote(nil, text)
	}
	for _, url := range r.decode {
		if _, err := call(url+"/sim/fault", body); err != nil {
			return err
		}
	}
	return nil
}

// legs returns how many prefill and decode legs the engines got for a request. Those that only give
// a handle back have an id that says so.
func (r rig) legs(requestID string) (prefill, decode int, err error) {
	mine := regexp.MustCompile("^" + regexp.QuoteMeta(requestID) + "-[0-9a-f]{8}$")
	for _, url := range r.engines() {
		var records []struct {
			RequestID string `json:"request_id"`
			Leg       string `json:"leg"`
		}
		if err := getJSON(url+"/sim/requests", &records); err != nil {
			return 0, 0, err
		}
		for _, rec := range records {
			switch {
			case !mine.MatchString(rec.RequestID):
			case rec.Leg == "prefill":
				prefill++
			default:
				decode++
			}
		}
	}
	return prefill, decode, nil
}

var refusedLine = regexp.MustCompile(`(?m)^xpyd_requests_total\{.*outcome="(?:client_)?error".*\} (\S+)$`)

// refusals returns how many completions xpyd has answered with an error so far. These it counts before the
// client has the answer, all others after it.
func (r rig) refusals() (int, error) {
	text, err := call(r.admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, m := range refusedLine.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return int(sum), nil
}

func wait(what string, holds func() (bool, error)) error {
	const bound = 10 * time.Second
	for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %s", bound, what)
		}
	}
}

// nothingHeld expects that no engine has a block pinned or a request running, well before a lease
// of 30 s ends.
func (r rig) nothingHeld() error {
	return wait("every block free and every engine idle", func() (bool, error) {
		busy := 0
		for _, url := range r.engines() {
			var held struct {
				Pinned int `json:"pinned"`
			}
			var load struct {
				Running int `json:"server_load"`
			}
			if err := getJSON(url+"/sim/ledger", &held); err != nil {
				return false, err
			}
			if err := getJSON(url+"/load", &load); err != nil {
				return false, err
			}
			busy += held.Pinned + load.Running
		}
		return busy == 0, nil
	})
}
