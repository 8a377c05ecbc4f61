package config

import (
	"slices"
	"testing"
)

func TestStrangeVariablesGetAWarning(t *testing.T) {
	for _, tc := range []struct {
		name    string
		environ []string
		want    []string
	}{
		{"misspelt", []string{"XPYD_TIMEOUT_DIAL=1s"},
			[]string{"the variable XPYD_TIMEOUT_DIAL names no known key and does nothing; the nearest is XPYD_TIMEOUTS_DIAL"}},
		{"like none", []string{"XPYD_HOME=/"},
			[]string{"the variable XPYD_HOME names no known key and does nothing; xpyd serve --help lists all"}},
		{"of an image", []string{"XPYD_VERSION=1.2", "XPYD_PORT=8080", "XPYD_VERSION=1.3"}, []string{
			"the variable XPYD_PORT names no known key and does nothing; xpyd serve --help lists all",
			"the variable XPYD_VERSION names no known key and does nothing; xpyd serve --help lists all"}},
		{"of Kubernetes", []string{"XPYD_SERVICE_HOST=10.0.0.1", "XPYD_SERVICE_PORT=80", "XPYD_PORT=tcp://10.0.0.1:80", "XPYD_PORT_80_TCP_PROTO=tcp"}, nil},
		{"of others", []string{"XPYDX=1", "OTHER_XPYD_X=1"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := load(t, append([]string{"--listen=127.0.0.1:1", "--prefill=http://p:1"}, decodeFlag...), tc.environ)
			if err != nil {
				t.Fatal(err)
			}
			if got := Warnings(c); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// A key that xpyd does not check is an open door, so a warning is not enough.
func TestVariableThatWasMeantForKeys(t *testing.T) {
	_, err := load(t, decodeFlag, []string{"XPYD_API_KEY=sesame"})
	checkUsage(t, err, "config: the variable XPYD_API_KEY names no known key; the nearest is XPYD_API_KEYS")
	_, err = load(t, decodeFlag, []string{"XPYD_API_KEYFILE=/sesame"})
	checkUsage(t, err, "config: the variable XPYD_API_KEYFILE names no known key; the nearest is XPYD_API_KEY_FILE")
}
