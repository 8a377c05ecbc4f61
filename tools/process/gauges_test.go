package process

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGaugesAreReadFromTheTextFormat(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "# HELP xpyd_in_flight Requests in flight.\n# TYPE xpyd_in_flight gauge\n"+
			"xpyd_in_flight{backend=\"a\",role=\"prefill\"} 1\nxpyd_in_flight{backend=\"b\",role=\"decode\"} 2\n"+
			"xpyd_kv_handles_total{end=\"burnt\"} 7\nxpyd_panics_total 1\nxpyd_request_bytes_buffered 1.5e+03\n")
	}))
	defer srv.Close()
	g, err := ReadGauges(t.Context(), strings.TrimPrefix(srv.URL, "http://"))
	if err != nil || g.InFlight != 3 || g.handles["burnt"] != 7 || g.panics != 1 || g.buffered != 1500 {
		t.Errorf("gauges %+v, error %v", g, err)
	}
	if p := g.Problems(); len(p) != 3 {
		t.Errorf("problems %q, want in flight, body bytes and panics", p)
	}
}
