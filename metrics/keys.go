package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Keys and models are named by operators and by clients, and may be many. So each label takes the names
// that come first, up to these numbers. All further ones are counted as other.
const (
	mostKeys   = 100
	mostModels = 30
)

// Keys counts by the name of a client's key. No series exists where no key is set.
type Keys struct {
	labels                    *Labels
	requests, tokens, refused *prometheus.CounterVec
	ttft, tpot                *prometheus.SummaryVec
	keys, models              firstNames
}

// registerKeys registers what the holders of keys use.
func (m *Metrics) registerKeys() *Keys {
	return &Keys{
		labels:   &m.labels,
		requests: m.counterVec("xpyd_key_requests_total", "Completions, and requests that one engine answers alone, counted as they end, by the name of the client's key and outcome. The first 100 names have series of their own. All others count as other.", "key", "outcome"),
		tokens:   m.counterVec("xpyd_key_tokens_total", "Tokens of prompts (prompt) and answers (completion), by the name of the client's key and model, as the engine counts them or else as estimated. The first 30 models that an engine has served have series of their own. All others count as other.", "key", "model", "kind"),
		refused:  m.counterVec("xpyd_key_refused_total", "Refused requests, by key name and by limit: in_flight, requests (a minute), tokens (a minute) or models.", "key", "limit"),
		ttft:     m.summaryVec("xpyd_key_ttft_seconds", "As xpyd_ttft_seconds, by the name of the client's key.", "key"),
		tpot:     m.summaryVec("xpyd_key_time_per_output_token_seconds", "As xpyd_time_per_output_token_seconds, by the name of the client's key.", "key"),
		keys:     firstNames{most: mostKeys},
		models:   firstNames{most: mostModels},
	}
}

// KeyRequest counts a request of a key that has ended. outcome is an index of Labels.Outcomes.
func (k *Keys) KeyRequest(key string, outcome int) {
	k.requests.WithLabelValues(k.keys.of(key), nameOf(k.labels.Outcomes, outcome)).Inc()
}

// KeyTokens counts the tokens of a request, if there are any. served says that an engine has answered with the model.
// Only then the model gets series of its own, as a client may ask for any name.
func (k *Keys) KeyTokens(key, model string, served bool, prompt, completion int) {
	if prompt+completion == 0 {
		return
	}
	key = k.keys.of(key)
	nameOfModel := k.models.known
	if served {
		nameOfModel = k.models.of
	}
	name := nameOfModel(model)
	k.tokens.WithLabelValues(key, name, "prompt").Add(float64(prompt))
	k.tokens.WithLabelValues(key, name, "completion").Add(float64(completion))
}

// KeyStreamed observes a stream as Metrics.Stream does.
func (k *Keys) KeyStreamed(key string, ttft, span time.Duration, events int) {
	key = k.keys.of(key)
	k.ttft.WithLabelValues(key).Observe(ttft.Seconds())
	if events > 1 {
		k.tpot.WithLabelValues(key).Observe(span.Seconds() / float64(events-1))
	}
}

// KeyRefused counts a request that met a limit of its key.
func (k *Keys) KeyRefused(key, limit string) {
	k.refused.WithLabelValues(k.keys.of(key), limit).Inc()
}

// firstNames lets the names through that come first.
type firstNames struct {
	most int
	mu   sync.Mutex
	seen map[string]string // label values by name
}

// known returns the name if of has let it through, and other otherwise.
func (f *firstNames) known(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.seen[name]; ok {
		return known
	}
	return other
}

// of returns the name, or other if there are too many before it.
func (f *firstNames) of(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.seen[name]; ok {
		return known
	}
	if len(f.seen) >= f.most {
		return other
	}
	if f.seen == nil {
		f.seen = map[string]string{}
	}
	known := strings.ToValidUTF8(name, "?") // a label takes nothing else
	f.seen[name] = known
	return known
}
