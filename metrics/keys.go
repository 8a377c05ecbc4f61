package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Keys and models are named by operators and by clients, and may be many. So each label takes the names
// that come first, up to these numbers. All further ones are counted as other.
const (
	mostKeys   = 100
	mostModels = 30
)

// byKey are the series that have the name of a client's key. None exists where no key is set.
type byKey struct {
	requests, tokens, refused *prometheus.CounterVec
	keys, models              firstNames
}

// registerKeys registers what the holders of keys use.
func (m *Metrics) registerKeys() {
	m.byKey = byKey{
		requests: m.counterVec("xpyd_key_requests_total", "Completions, and requests that one engine answers alone, counted as they end, by the name of the client's key and outcome. The first 100 names have series of their own. All others count as other.", "key", "outcome"),
		tokens:   m.counterVec("xpyd_key_tokens_total", "Tokens of prompts (prompt) and answers (completion), by the name of the client's key and model, as the engine counts them or else as estimated. The first 30 models that an engine has served have series of their own. All others count as other.", "key", "model", "kind"),
		refused:  m.counterVec("xpyd_key_refused_total", "Refused requests, by key name and by limit: in_flight, requests (a minute), tokens (a minute) or models.", "key", "limit"),
		keys:     firstNames{most: mostKeys},
		models:   firstNames{most: mostModels},
	}
}

// KeyRequest counts a request of a key that has ended. outcome is an index of Labels.Outcomes.
func (m *Metrics) KeyRequest(key string, outcome int) {
	m.byKey.requests.WithLabelValues(m.byKey.keys.of(key), nameOf(m.labels.Outcomes, outcome)).Inc()
}

// KeyTokens counts the tokens of a request, if there are any. served says that an engine has answered with the model.
// Only then the model gets series of its own, as a client may ask for any name.
func (m *Metrics) KeyTokens(key, model string, served bool, prompt, completion int) {
	if prompt+completion == 0 {
		return
	}
	key = m.byKey.keys.of(key)
	nameOfModel := m.byKey.models.known
	if served {
		nameOfModel = m.byKey.models.of
	}
	name := nameOfModel(model)
	m.byKey.tokens.WithLabelValues(key, name, "prompt").Add(float64(prompt))
	m.byKey.tokens.WithLabelValues(key, name, "completion").Add(float64(completion))
}

// KeyRefused counts a request that met a limit of its key.
func (m *Metrics) KeyRefused(key, limit string) {
	m.byKey.refused.WithLabelValues(m.byKey.keys.of(key), limit).Inc()
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
