package versus

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// The window of a large pool begins when no further warm-up has been counted.
func TestWindowWaitsForWarmUps(t *testing.T) {
	for _, tc := range []struct {
		name     string
		prefills int
		readings int64
	}{
		{"large pool", 32, 3},
		{"small pool", 1, 0},
		{"one leg", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked atomic.Int64
			admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "go_goroutines 7\nxpyd_warmups_total{result=\"ok\"} %d\n", min(asked.Add(1), 2))
			}))
			defer admin.Close()
			p := &running{admin: strings.TrimPrefix(admin.URL, "http://")}
			if err := settle(context.Background(), shape{prefills: tc.prefills, decodes: 32}, p); err != nil {
				t.Fatal(err)
			}
			if n := asked.Load(); n != tc.readings {
				t.Errorf("%d readings, want %d", n, tc.readings)
			}
		})
	}
}
