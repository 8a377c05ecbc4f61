package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"xpyd/proxy"
)

// An engine's text is hidden in whatever form an error event has.
func TestErrorEventOfAnyFormIsHidden(t *testing.T) {
	together(t)
	for _, own := range []string{
		"event: error\ndata: {\"message\":\"cannot reach 10.0.0.7\"}\n\n", "data: {\"choices\":[],\"message\":\"10.0.0.7\"}\r\nevent:Error \r\n\r\n",
		"event: error\ndata: cannot reach 10.0.0.7\n\n", "data: {\"object\":\"error\",\"message\":\"cannot reach 10.0.0.7\"}\n\n",
	} {
		for _, first := range []string{"", `data: {"choices":[{"index":0,"text":"abc","finish_reason":null}]}` + "\n\n"} {
			d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, first+own+"data: [DONE]\n\n")
			})
			r := newRig(t, rigOptions{prefill: -1, router: d.asDecode})
			a := r.call(forms(prompt, 9)[1])
			if a.code() != "decode_failed" || strings.Contains(a.body, "10.0.0.7") || (a.err == nil) != (first == "") || strings.Contains(a.body, "[DONE]") {
				t.Errorf("%q behind %q: %d %v %s", own, first, a.status, a.err, a.body)
			}
		}
	}
}

// Clients see what an engine says about an error in mid-stream only if errors.expose_upstream is
// on.
func TestErrorEventOfDecodeIsHidden(t *testing.T) {
	together(t)
	const own = `data: {"error":{"message":"cannot reach 10.0.0.7","type":"InternalServerError","code":500}}` + "\n\n"
	for _, expose := range []bool{false, true} {
		for _, behind := range []string{"", "data: [DONE]\n\n"} {
			t.Run(fmt.Sprintf("expose=%v/%q", expose, behind), func(t *testing.T) {
				d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
					_, _ = io.Copy(io.Discard, q.Body)
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"abc","finish_reason":null}]}`+"\n\n"+own+behind)
				})
				r := newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) { c.Errors.ExposeUpstream = expose }})
				a := r.call(forms(prompt, 9)[1])
				if a.err == nil || a.text() != "abc" || strings.Contains(a.body, "[DONE]") || strings.Count(a.body, `data: {"error"`) != 1 {
					t.Errorf("%q, %v: want the text, one error event and no clean end", a.body, a.err)
				}
				if expose != strings.HasSuffix(a.body, own) || !expose && (a.code() != "decode_failed" || strings.Contains(a.body, "10.0.0.7")) {
					t.Errorf("%q", a.body)
				}
			})
		}
	}
}
