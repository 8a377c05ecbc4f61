package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// legs is the outcome of a few requests that were sent to idle engines: what the proxy said about
// them, and what the engines counted.
type legs struct {
	answers         []*answer
	tokens          float64 // of all prompts
	prefill, decode page    // what the pools counted meanwhile
	took            [2]int  // engines of each pool that finished a leg
	disturbed       bool    // other requests came in between
	live            bool    // they were sent beside other traffic, see sendBeside
	others          float64 // then: prompt tokens that the others bring meanwhile, about
	err             error
}

// legTries is how often the requests are sent at most. Other requests in between spoil a try, and one
// warm-up of the proxy's own is enough for that.
const legTries = 3

// shared returns the requests that the rows about both legs share. The first of these rows sends them.
func (r *run) shared(ctx context.Context) *legs {
	if r.legs == nil {
		for range legTries {
			r.legs = &legs{}
			if r.legs.err = r.sendLegs(ctx, r.legs); !r.legs.disturbed {
				break
			}
		}
		if isBusy(r.legs.err) {
			r.legs = &legs{live: true}
			r.legs.err = sendBeside(ctx, r, r.legs)
		}
	}
	return r.legs
}

func (r *run) sendLegs(ctx context.Context, l *legs) error {
	before, err := r.quiet(ctx)
	if err != nil {
		return err
	}
	if err := l.send(ctx, r, min(2*max(len(r.Prefill), len(r.Decode)), 8), longPrompt); err != nil {
		return err
	}
	n := float64(len(l.answers))
	now, err := r.await(ctx, countWait, func(now reading) bool {
		p, d := since(now.prefill, before.prefill), since(now.decode, before.decode)
		return p.value[finished] >= n && d.value[finished] >= n && d.value[external] >= l.tokens
	})
	l.prefill, l.decode = since(now.prefill, before.prefill), since(now.decode, before.decode)
	l.took = [2]int{partOf(now.prefill, before.prefill), partOf(now.decode, before.decode)}
	if p, d := l.prefill.value[finished], l.decode.value[finished]; err == nil && (p > n || d > n || !now.idle()) {
		l.disturbed = true
		err = busy("while %v requests were sent, prefill finished %v and decode %v", n, p, d)
	}
	return err
}

// send sends so many requests, each with a prompt of its own of so many words.
func (l *legs) send(ctx context.Context, r *run, requests, words int) error {
	for range requests {
		a, err := r.through(ctx, completions, r.greedy(completions, r.prompt(words), 4))
		if err != nil {
			return err
		}
		if a.refusal != nil || a.status != 200 {
			return fmt.Errorf("a completion gets status %d", a.status)
		}
		l.answers = append(l.answers, a)
		l.tokens += float64(a.usage.Prompt)
	}
	if why := l.chosen(); why != "" {
		return undecided{fmt.Errorf("pd.mode or pd.threshold_tokens sends such prompts to decode alone (%s)", why)}
	}
	return nil
}

// chosen is the reason why the proxy sent a request to decode alone, although it could have
// disaggregated it.
func (l *legs) chosen() string {
	for _, a := range l.answers {
		switch why := a.header.Get("X-Xpyd-Reason"); {
		case a.header.Get("X-Xpyd-Path") == "disaggregated":
		case why == "short_prompt" || why == "price" || why == "explore":
			return why
		}
	}
	return ""
}

// partOf counts the engines that finished something.
func partOf(now, before []page) (n int) {
	for i := range now {
		if now[i].value[finished] > before[i].value[finished] {
			n++
		}
	}
	return n
}

// path goes by what the proxy says about the requests.
func (r *run) path(ctx context.Context) Row {
	l := r.shared(ctx)
	if len(l.answers) == 0 || l.chosen() != "" {
		return failed(l.err)
	}
	var reasons []string
	silent := 0
	for _, a := range l.answers {
		switch {
		case a.header.Get("X-Xpyd-Path") == "":
			silent++
		case a.header.Get("X-Xpyd-Path") != "disaggregated":
			reasons = append(reasons, a.header.Get("X-Xpyd-Reason"))
		}
	}
	switch {
	case silent > 0:
		return open("%d of %d answers have no X-Xpyd-Path; is this xpyd?", silent, len(l.answers))
	case len(reasons) > 0:
		slices.Sort(reasons)
		return bad("%d of %d requests went to a decode engine alone: %s (docs/metrics.md explains the reasons)",
			len(reasons), len(l.answers), strings.Join(slices.Compact(reasons), ", "))
	}
	return good("%d of %d requests took both legs; %d of %d prefill and %d of %d decode engines took part",
		len(l.answers), len(l.answers), l.took[0], len(r.Prefill), l.took[1], len(r.Decode))
}

// requestID: an engine shows a request's id only in its answer and in its log, and the proxy keeps the
// prefill engine's answer. So the row reads decode's ids, and only counts the requests of the prefill
// engines.
func (r *run) requestID(ctx context.Context) Row {
	l := r.shared(ctx)
	for _, a := range l.answers {
		switch {
		case a.header.Get("X-Request-Id") != a.asked:
			return bad("the answer does not repeat the client's X-Request-Id")
		case !strings.Contains(a.id, a.asked):
			return bad("the answer's id, which decode made from its leg's id, does not contain the client's X-Request-Id")
		}
	}
	n := float64(len(l.answers))
	switch {
	case l.live && n > 0:
		return good("%v requests, whose answers have ids like %s; legs are not counted beside other traffic", n, l.answers[0].id)
	case l.err != nil:
		return failed(l.err)
	case l.prefill.value[finished] != n || l.decode.value[finished] != n:
		return bad("of %v requests the prefill engines finished %v and the decode engines %v", n, l.prefill.value[finished], l.decode.value[finished])
	}
	return good("%v requests, each one leg on both pools; the logs of all engines have ids like %s", n, l.answers[0].id)
}

// prefill: the prefill engines compute each prompt and one token of each answer.
func (r *run) prefill(ctx context.Context) Row {
	l := r.shared(ctx)
	n, p := float64(len(l.answers)), &l.prefill
	switch {
	case l.err != nil:
		return failed(l.err)
	case p.value[prompt] < l.tokens:
		return bad("the prefill engines had %v of %v prompt tokens", p.value[prompt], l.tokens)
	case l.live:
		return good("%v prompt tokens%s", l.tokens, l.beside())
	case p.value[generated] > n:
		return bad("the prefill engines generated %v tokens for %v requests; one each is enough", p.value[generated], n)
	}
	return good("%v prompt tokens, one generated token a request", p.value[prompt])
}

// pull: the decode engines take the KV of the prompts from the prefill engines, and compute none.
func (r *run) pull(ctx context.Context) Row {
	l := r.shared(ctx)
	if l.err != nil {
		return failed(l.err)
	}
	d := &l.decode
	got := d.value[pulled]
	switch {
	case !d.has[pulled] && !d.has[external]:
		return open("the decode engines show neither vllm:prompt_tokens_by_source_total nor vllm:external_prefix_cache_hits_total")
	case !d.has[pulled]:
		got = d.value[external]
	}
	most := 0.0
	if l.live {
		got, most = min(got, l.tokens), 2*liveShare*l.tokens
	}
	if got < l.tokens || d.value[computed] > most {
		return bad("decode pulled %v of %v prompt tokens and computed %v itself, %v transfers failed; check --kv-transfer-config of all engines, and run xpyd check --probe",
			got, l.tokens, d.value[computed], d.value[failures])
	}
	if l.live {
		return good("%v of %v prompt tokens pulled%s", got, l.tokens, l.beside())
	}
	text := fmt.Sprintf("%v of %v prompt tokens pulled, none computed", got, l.tokens)
	if n := d.value[transfers]; n > 0 {
		text += fmt.Sprintf("; %v transfers, %.1f MB, %.1f ms each", n, d.value[transferBytes]/1e6, 1000*d.value[transferSeconds]/n)
	}
	return Row{State: OK, Detail: text}
}
