package proxy_test

import (
	"strings"
	"testing"
)

// A whole answer shows no first token, so neither its log line nor the metrics have one.
func TestOnlyStreamsHaveATTFT(t *testing.T) {
	together(t)
	for _, c := range forms(prompt, 5) {
		t.Run(c.name(), func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.expectWhole(c, r.call(c))
			r.await("logged", func() bool { return strings.Contains(r.logs.String(), `"message":"completion"`) })
			if told := strings.Contains(r.logs.String(), `"ttft_ms":`); told != c.stream {
				t.Errorf("ttft_ms in the log: %v\n%s", told, r.logs)
			}
			if n := r.metric("xpyd_ttft_seconds_count"); (n == 1) != c.stream {
				t.Errorf("%v counted", n)
			}
		})
	}
}
