package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"xpyd/kvparams"
	"xpyd/router"
)

// quoting is an engine that refuses each request. The request's id says how, see quoteID.
type quoting struct {
	*stub
	said sync.Map // its text, by id
}

// quote is what an engine may repeat of a body.
type quote struct {
	name string
	of   func(body string) string
}

var quotes = []quote{
	{"the body", func(body string) string { return body }},
	{"the body as text", func(body string) string { return fmt.Sprintf(`{"error":{"message":%q}}`, body) }},
	{"strings of it", func(body string) string {
		var found []string
		for _, m := range toldString.FindAllStringSubmatch(door.FindString(body), -1) {
			found = append(found, m[1])
		}
		return fmt.Sprintf(`{"error":{"message":"top_k must be above 0 %s"}}`, found)
	}},
}

var (
	// door begins with the first member that only xpyd puts into a body, and nothing else comes after it.
	door = regexp.MustCompile(`(?s)"(?:kv_transfer_params|ec_transfer_params|bootstrap_host)\\*":.*`)
	// toldString is a string there, and toldMember that or the name of a string or number, plain or inside another string.
	toldString = regexp.MustCompile(`:"([^"]{8,})"`)
	toldMember = regexp.MustCompile(`\w{8,}\\*":\\*["0-9]|:\\*"[^"\\]{8,}\\*"`)
)

// leaks reports whether an error that q has made repeats what only xpyd puts into a body.
func (q quote) leaks(text string) bool {
	if q.name == "strings of it" {
		return text != q.of("")
	}
	return toldMember.MatchString(door.FindString(text))
}

func quoteID(quote, status int) string { return fmt.Sprintf("quote%d-%d", quote, status) }

func newQuoting(t *testing.T) *quoting {
	q := &quoting{}
	q.stub = newStub(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(body), `"cache_salt"`) { // a drain
			_, _ = io.WriteString(w, `{}`)
			return
		}
		var quote, status int
		_, _ = fmt.Sscanf(req.Header.Get("X-Request-Id"), "quote%d-%d-", &quote, &status)
		text := quotes[quote].of(string(body))
		q.said.Store(quoteID(quote, status), text)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})
	return q
}

// as puts the engine in the place of the first one of a pool, whose bootstrap server stays.
func (q *quoting) as(leg string) func(c *router.Config) {
	return func(c *router.Config) {
		pool := c.Decode
		if leg == "prefill" {
			pool = c.Prefill
		}
		pool[0].URL = q.server.URL
	}
}

// expectNoQuotes has the engine refuse what ask asks. The client gets its text, unless that repeats what only
// xpyd has told it.
func (q *quoting) expectNoQuotes(t *testing.T, statuses []int, ask func(id string) answer) {
	t.Helper()
	for i, quote := range quotes {
		for _, status := range statuses {
			a := ask(quoteID(i, status))
			said, asked := q.said.Load(quoteID(i, status))
			if !asked {
				t.Fatalf("the engine was not asked: %d %s", a.status, a.body)
			}
			leaks := quote.leaks(said.(string))
			if a.status != status || (a.body == said) == leaks || leaks && a.code() != "upstream_rejected" {
				t.Errorf("%d that repeats %s: the client gets %d %s of %s", status, quote.name, a.status, a.body, said)
			}
		}
	}
}

// Some engines quote the whole request when they refuse it. Clients see such an error only if it does not
// show what xpyd has told the engine of others.
func TestRefusalThatQuotesTheHandle(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		for _, leg := range []string{"prefill", "decode"} {
			t.Run(leg, func(t *testing.T) {
				q := newQuoting(t)
				r := newRig(t, rigOptions{dialect: d, router: q.as(leg)})
				q.expectNoQuotes(t, []int{400, 404}, func(id string) answer { return r.call(call{prompt: prompt, tokens: 3}, "X-Request-Id", id) })
			})
		}
	})
}

// The same holds for what xpyd has told it of encodings.
func TestRefusalThatQuotesEncodings(t *testing.T) {
	together(t)
	for leg, prefill := range map[string]int{"prefill": 1, "decode": -1} {
		t.Run(leg, func(t *testing.T) {
			q := newQuoting(t)
			r := newRig(t, rigOptions{prefill: prefill, encode: 1, router: q.as(leg)})
			statuses := []int{400, 404}
			if leg == "prefill" {
				statuses[0] = 413 // a 400 to media may come of P's flags, so D's answer counts
			}
			q.expectNoQuotes(t, statuses, func(id string) answer {
				return r.post("/v1/chat/completions", withMedia("", picture("AAAA")), "X-Request-Id", id)
			})
		})
	}
}
