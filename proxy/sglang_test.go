package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/sim"
)

// sglangRig has engines of SGLang that are chosen by their load, which they tell by SGLang's own names.
func sglangRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	o.dialect, _ = kvparams.Lookup("sglang")
	o.router = then(o.router, func(c *router.Config) {
		c.PrefillPolicy, c.DecodePolicy = "least_request", "least_request"
		c.Routing.Poll = 2 * time.Second // a reading counts for three of these
	})
	return newRig(t, o)
}

// elsewhere sends an engine a completion of another proxy's client, which runs until the test ends.
func (r *rig) elsewhere(url string, tokens int, members string) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		body := fmt.Sprintf(`{"model":"sim","prompt":"theirs","max_tokens":%d,"ignore_eos":true%s}`, tokens, members)
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(body))
		if err != nil {
			return
		}
		q.Header.Set("Content-Type", "application/json")
		if resp, err := r.client.Do(q); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	r.t.Cleanup(func() { cancel(); <-ended })
}

// Engines of SGLang have no vllm: series. What others have on them is known by their own.
func TestSGLangEnginesAreChosenByTheirOwnSeries(t *testing.T) {
	r := sglangRig(t, rigOptions{prefill: 2, decode: 2, engine: func(o *sim.Options) { o.TokenLatency = 20 * time.Millisecond }})
	p, d := r.prefill[0].URL(), r.decode[0].URL()
	for i := range 3 {
		r.elsewhere(d, 4000, "")
		// Its decode server never comes, so it waits in the queue of transfers.
		r.elsewhere(p, 1, fmt.Sprintf(`,"bootstrap_host":"127.0.0.1","bootstrap_port":1,"bootstrap_room":%d`, i+1))
	}
	r.await("load known", func() bool { return r.backend(p).Elsewhere == 3 && r.backend(d).Elsewhere == 3 })
	if b := r.backend(d); b.Engine["running"] != 3 || b.Engine["kv_usage"] <= 0 || b.Engine["block_size"] <= 0 || b.EngineUnknown != "" {
		t.Errorf("%+v: want 3 running, a part of the KV cache used, and nothing unknown", b)
	}
	if b := r.backend(p); b.Engine["waiting"] != 3 {
		t.Errorf("%+v: want 3 waiting for their decode server", b)
	}
	for _, c := range forms(prompt, 3) {
		r.expectWhole(c, r.call(c))
	}
	for _, pool := range [][]*sim.Engine{r.prefill, r.decode} {
		for i, want := range []int{0, 4} {
			if n := len(ours(pool[i])); n != want {
				t.Errorf("%s has %d legs, want %d", pool[i].Name(), n, want)
			}
		}
	}
}

// ours are the legs of this proxy's completions on an engine.
func ours(e *sim.Engine) (all []sim.Record) {
	for _, rec := range e.Requests() {
		if !strings.Contains(string(rec.Body), "theirs") {
			all = append(all, rec)
		}
	}
	return all
}

// No route of SGLang is called when a client leaves: the legs' connections are closed. Then neither
// engine has the request any more, by its own series.
func TestSGLangEnginesAreFreeAfterAClientLeaves(t *testing.T) {
	together(t)
	for _, phase := range []sim.Phase{sim.PhasePrefillStart, sim.PhaseStreamEvent} {
		t.Run(string(phase), func(t *testing.T) {
			b := newBarrier(phase, 2)
			r := sglangRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook, o.TokenLatency = b.hook, 20*time.Millisecond }})
			t.Cleanup(b.open)
			conn := r.dialRaw()
			_, _ = io.WriteString(conn, raw(forms(prompt, 2000)[1], "leaver"))
			select {
			case <-b.reached:
			case <-time.After(30 * time.Second):
				t.Fatalf("no engine came to %s\n%s", phase, r.logs)
			}
			d := r.decode[0].URL()
			r.await("the request in decode's own series", func() bool { return r.held(d) == 1 })
			_ = conn.Close()
			b.open()
			for _, url := range []string{r.prefill[0].URL(), d} {
				r.await("free by its own series", func() bool { return r.held(url) == 0 })
			}
			r.expectNothingHeld()
			r.expectNoneUsed()
		})
	}
}

// held is how many requests an engine has by SGLang's series.
func (r *rig) held(url string) (n float64) {
	r.t.Helper()
	resp, err := r.client.Get(url + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	a := string(page)
	if strings.Contains(a, "vllm:") || !strings.Contains(a, "sglang:num_running_reqs{") {
		r.t.Fatalf("no page of SGLang:\n%s", a)
	}
	for line := range strings.Lines(a) {
		name, rest, _ := strings.Cut(line, "{")
		if strings.HasSuffix(name, "_reqs") && !strings.HasPrefix(name, "#") {
			var v float64
			_, _ = fmt.Sscan(rest[strings.LastIndexByte(rest, '}')+1:], &v)
			n += v
		}
	}
	return n
}
