package proxy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"xpyd/intake/limits"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// saltedRig has keys alpha and beta, whose prompts are kept apart, and gamma, whose prompts are not.
func saltedRig(t *testing.T) *rig {
	apart := func(t *limits.Terms) { t.CacheSalt = true }
	return newRig(t, rigOptions{
		prefill: 2, router: func(c *router.Config) { c.PrefillPolicy = "prefix" },
		config: func(c *proxy.Config) {
			c.Keys = []limits.Terms{holder("alpha", apart), holder("beta", apart), holder("gamma", nil)}
		},
	})
}

// One key cannot see from cached tokens whether another has sent a prompt, and not from which engine takes it either.
func TestKeysDoNotSeeEachOthersPrompts(t *testing.T) {
	r := saltedRig(t)
	body := `{"model":"sim","prompt":"` + strings.Repeat("a secret of some length ", 60) + `","max_tokens":1}`
	cached := func(key string) (n int) {
		a := r.post("/v1/completions", body, as(key)...)
		var said struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &said); err != nil || a.status != 200 {
			t.Fatalf("%d %v %s", a.status, err, a.body)
		}
		return said.Usage.Details.Cached
	}
	if n := cached("alpha"); n != 0 {
		t.Errorf("%d tokens cached of a fresh prompt", n)
	}
	if n := cached("alpha"); n == 0 {
		t.Error("a key does not find its own prompt")
	}
	for _, key := range []string{"beta", "gamma"} {
		if n := cached(key); n != 0 {
			t.Errorf("%s finds %d tokens of alpha's prompt", key, n)
		}
		if n := cached(key); n == 0 {
			t.Errorf("%s does not find its own prompt", key)
		}
	}
}

var saltOf = regexp.MustCompile(`"cache_salt":"([^"]*)"`)

// Both legs of every API have the salt of the key, and nothing of the key or of what the client asks for.
func TestBothLegsHaveTheSalt(t *testing.T) {
	r := saltedRig(t)
	seen := map[string]string{}
	legsOf := func(id, api, key, more string) string {
		var path, body string
		switch c := (apiCall{api: api, prompt: prompt, tokens: 3, more: more}); api {
		case "chat", "completions":
			c := call{chat: api == "chat", prompt: prompt, tokens: 3, more: more}
			path, body = c.path(), c.body()
		default:
			path, body = c.path(), c.body()
		}
		if a := r.post(path, body, append(as(key), "X-Request-Id", id)...); a.status != 200 || a.header.Get("X-Xpyd-Path") != "disaggregated" {
			t.Fatalf("%s: %d %s", api, a.status, a.body)
		}
		var salts []string
		for _, engines := range [][]*sim.Engine{r.prefill, r.decode} {
			r.await("recorded", func() bool { return len(records(engines, id)) > 0 })
			for _, rec := range records(engines, id) {
				m := saltOf.FindAllSubmatch(rec.Body, -1)
				if len(m) != 1 || strings.Contains(string(rec.Body), "sk-") {
					t.Fatalf("%s: %s", api, rec.Body)
				}
				salts = append(salts, string(m[0][1]))
			}
		}
		if len(salts) != 2 || salts[0] != salts[1] || !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(salts[0]) {
			t.Fatalf("%s: salts %q", api, salts)
		}
		return salts[0]
	}
	for i, api := range []string{"chat", "completions", "messages", "responses", "generate"} {
		for _, key := range []string{"alpha", "beta"} {
			salt := legsOf(fmt.Sprint("salt-", i, key), api, key, "")
			if seen[key] != "" && seen[key] != salt {
				t.Errorf("%s: %s has another salt than before", api, key)
			}
			seen[key] = salt
		}
	}
	if seen["alpha"] == seen["beta"] {
		t.Error("two keys have one salt")
	}
	stolen := legsOf("stolen", "chat", "beta", `,"cache_salt":"`+seen["alpha"]+`"`)
	mine := legsOf("mine", "chat", "beta", `,"cache_salt":"a"`)
	if stolen == seen["alpha"] || mine == seen["beta"] || mine == stolen {
		t.Errorf("beta's own salts become %s and %s", stolen, mine)
	}
	if a := r.post("/v1/completions", `{"model":"sim","prompt":"x","cache_salt":5}`, as("alpha")...); a.status != 400 || a.code() != "invalid_type" {
		t.Errorf("a salt that is no text: %d %s", a.status, a.body)
	}
	if a := r.post("/v1/completions", `{"model":"sim","prompt":"x","max_tokens":1,"cache_salt":"own"}`, append(as("gamma"), "X-Request-Id", "plain")...); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, rec := range records(r.decode, "plain") {
		if !strings.Contains(string(rec.Body), `"cache_salt":"own"`) {
			t.Errorf("the salt of a client whose key has none: %s", rec.Body)
		}
	}
}

// records are what engines have had of a request.
func records(engines []*sim.Engine, id string) (all []sim.Record) {
	for _, e := range engines {
		for _, rec := range e.Requests() {
			if strings.HasPrefix(rec.RequestID, id+"-") {
				all = append(all, rec)
			}
		}
	}
	return all
}
