package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestHeadersToPass(t *testing.T) {
	load := func(value string) (Config, error) {
		fs := pflag.NewFlagSet("xpyd", pflag.ContinueOnError)
		AddFlags(fs)
		if err := fs.Parse([]string{"--decode=http://127.0.0.1:1", "--headers-pass=" + value}); err != nil {
			t.Fatal(err)
		}
		return Load(t.Context(), NewFiles(false), fs, nil)
	}
	for value, want := range map[string][]string{
		"":                                     nil,
		"X-data-parallel-rank":                 {"X-data-parallel-rank"},
		"X-Session-ID, X-Tenant,x-slo-ttft-ms": {"X-Session-ID", "X-Tenant", "x-slo-ttft-ms"},
	} {
		if c, err := load(value); err != nil || !slices.Equal(c.Headers.Pass, want) {
			t.Errorf("%q: %q, %v", value, c.Headers.Pass, err)
		}
	}
	for value, fix := range map[string]string{
		"X Session":                 "is no name of a header",
		"X-Séance":                  "is no name of a header",
		"X-A:":                      "is no name of a header",
		"X-A\r\nX-B":                "is no name of a header",
		"X-A,x-a":                   "is listed twice",
		"Host":                      "is written by xpyd itself",
		"content-LENGTH":            "is written by xpyd itself",
		"x-request-id":              "is written by xpyd itself",
		"Expect":                    "is written by xpyd itself",
		"Transfer-Encoding":         "is about one connection",
		"X-Session-ID,Connection":   "is about one connection",
		"Upgrade":                   "is about one connection",
		"Proxy-Authorization":       "is about one connection",
		"Authorization":             "always goes on",
		"traceparent":               "always goes on",
		"X-Api-Key":                 "holds a client's key",
		"X-Session-ID,user-agent,x": "always goes on",
		"Anthropic-Version":         "always goes on",
		"anthropic-beta":            "always goes on",
	} {
		_, err := load(value)
		if err == nil || !strings.HasPrefix(err.Error(), "config: headers.pass: ") || !strings.Contains(err.Error(), fix) ||
			!strings.HasSuffix(err.Error(), "(flag --headers-pass, XPYD_HEADERS_PASS)") || strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("%q: %v, want a line that says %q", value, err, fix)
		}
	}
}
