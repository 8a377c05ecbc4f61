package engines

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"

	"xpyd/router"
)

// family is one of the metrics that are read from an engine.
type family uint8

// If vLLM has renamed a metric, the old name comes after the new one. Some versions export both,
// with the same values.
const (
	famRunning family = iota
	famWaiting
	famUsage
	famUsageOld
	famQueries
	famQueriesOld
	famHits
	famHitsOld
	famPrompt
	famGeneration
	famPulled
	famComputed
	famQueueTime
	famPrefillTime
	famPrefillCount
	famPrefillTokens
	famTransferTime
	famTransferCount
	famTransferBytes
	famStarted
	famBlockSize
	famBlocks
	famPartBlocks // samples whose blocks may not hold all tokens of a sequence
	families
)

// reading sums the samples of a family. A data-parallel engine has one for each rank.
type reading struct {
	sum   float64
	n     int  // samples
	wild  bool // one was not a finite number
	below bool // one was below 0
}

// page holds what was read from a text in Prometheus' exposition format.
type page [families]reading

// familyOf returns the family of a metric, whose name comes without "vllm:". Not every exporter
// writes the _total of a counter, so it is cut off.
func familyOf(name []byte) (family, bool) {
	name = bytes.TrimSuffix(name, []byte("_total"))
	switch string(name) {
	case "num_requests_running":
		return famRunning, true
	case "num_requests_waiting":
		return famWaiting, true
	case "kv_cache_usage_perc":
		return famUsage, true
	case "gpu_cache_usage_perc":
		return famUsageOld, true
	case "prefix_cache_queries":
		return famQueries, true
	case "gpu_prefix_cache_queries":
		return famQueriesOld, true
	case "prefix_cache_hits":
		return famHits, true
	case "gpu_prefix_cache_hits":
		return famHitsOld, true
	case "prompt_tokens":
		return famPrompt, true
	case "generation_tokens":
		return famGeneration, true
	case "request_queue_time_seconds_sum":
		return famQueueTime, true
	case "request_prefill_time_seconds_sum":
		return famPrefillTime, true
	case "request_prefill_time_seconds_count":
		return famPrefillCount, true
	case "request_prefill_kv_computed_tokens_sum":
		return famPrefillTokens, true
	case "nixl_xfer_time_seconds_sum":
		return famTransferTime, true
	case "nixl_xfer_time_seconds_count":
		return famTransferCount, true
	case "nixl_bytes_transferred_sum":
		return famTransferBytes, true
	}
	return 0, false
}

// parsePage reads the metrics page of an engine that serves vLLM's metrics, or the part of it that is
// about one rank. The error names those
// metrics of the engine's load that are missing or have an impossible value. The state has the rest.
func parsePage(text []byte, rank int) (router.EngineState, error) {
	var p page
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		if rank == router.NoRank || !ofOther(line, "engine", rank) {
			p.line(line)
		}
	}
	return p.state(vllmLoad)
}

// loadNames are the metrics of an engine's load, as an error names them.
type loadNames struct{ running, waiting, usage string }

var vllmLoad = loadNames{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}

// ofOther reports whether a line is about another rank, by that label. A line without it is about all of them.
func ofOther(line []byte, label string, rank int) bool {
	i := bytes.IndexByte(line, '{')
	if i < 0 {
		return false
	}
	l, ok := startLabels(line[i:])
	for ; ok && !l.done; l, ok = l.next() {
		if string(l.name) == label {
			n, err := strconv.Atoi(string(l.value))
			return err != nil || n != rank
		}
	}
	return false
}

func (p *page) line(line []byte) {
	if len(line) == 0 || line[0] != 'v' && line[0] != 'p' {
		return
	}
	end := bytes.IndexByte(line, '{')
	if end < 0 {
		end = max(bytes.IndexAny(line, " \t"), 0)
	}
	name, ours := bytes.CutPrefix(line[:end], []byte("vllm:"))
	rest := line[end:]
	switch {
	case !ours && string(name) == "process_start_time_seconds":
		p.sample(famStarted, rest)
	case ours && string(name) == "cache_config_info":
		p.cacheConfig(rest)
	case ours && string(bytes.TrimSuffix(name, []byte("_total"))) == "prompt_tokens_by_source":
		p.bySource(rest)
	case ours:
		if f, ok := familyOf(name); ok {
			p.sample(f, rest)
		}
	}
}

// bySource reads vllm:prompt_tokens_by_source, of which two sources count.
func (p *page) bySource(rest []byte) {
	l, ok := startLabels(rest)
	for ; ok && !l.done; l, ok = l.next() {
		switch {
		case string(l.name) != "source":
		case string(l.value) == "external_kv_transfer":
			p.sample(famPulled, rest)
		case string(l.value) == "local_compute":
			p.sample(famComputed, rest)
		}
	}
}

// sample adds a value that follows its labels. Broken labels make the family wild.
func (p *page) sample(f family, rest []byte) {
	r := &p[f]
	r.n++
	for l, ok := startLabels(rest); ; {
		if !ok {
			r.wild = true
			return
		}
		if l.done {
			rest = l.rest
			break
		}
		l, ok = l.next()
	}
	rest = bytes.TrimLeft(rest, " \t")
	if i := bytes.IndexAny(rest, " \t\r"); i >= 0 {
		rest = rest[:i] // a timestamp may follow
	}
	r.add(rest)
}

func (r *reading) add(text []byte) {
	v, err := math.NaN(), error(nil)
	if len(text) <= 32 {
		v, err = strconv.ParseFloat(string(text), 64)
	}
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		r.wild = true
		return
	}
	r.sum += v
	r.below = r.below || v < 0
}

// cacheConfig reads vllm:cache_config_info, whose labels hold the values.
func (p *page) cacheConfig(rest []byte) {
	var size, blocks, tokens reading
	window := true
	l, ok := startLabels(rest)
	for ok && !l.done {
		switch string(l.name) {
		case "block_size":
			p[famBlockSize].n++
			p[famBlockSize].add(l.value)
			size.add(l.value)
		case "num_gpu_blocks":
			p[famBlocks].n++
			p[famBlocks].add(l.value)
			blocks.add(l.value)
		case "kv_cache_size_tokens":
			tokens.add(l.value)
		case "sliding_window":
			window = string(l.value) != "None"
		}
		l, ok = l.next()
	}
	// The cache holds another number of tokens if there are several cache groups or a window, or if
	// ranks share the tokens of a block. It holds a little less if the model length is no multiple of
	// a block.
	if most := size.sum * blocks.sum; window || tokens.wild || most <= 0 || tokens.sum > most || tokens.sum < 0.99*most {
		p[famPartBlocks].n++
	}
}

// label is one of the labels of a sample. If done is true, there are no more, and rest is the value
// of the sample. Escapes in value stay as they are.
type label struct {
	name, value, rest []byte
	done              bool
}

// startLabels returns the first label of b, or one that is done if b begins with none.
func startLabels(b []byte) (label, bool) {
	b = bytes.TrimLeft(b, " \t")
	if len(b) == 0 || b[0] != '{' {
		return label{rest: b, done: true}, len(b) > 0
	}
	return label{rest: b[1:]}.next()
}

// next returns false if no label follows.
func (l label) next() (label, bool) {
	b := bytes.TrimLeft(l.rest, " ,")
	if len(b) > 0 && b[0] == '}' {
		return label{rest: b[1:], done: true}, true
	}
	i := bytes.IndexByte(b, '=')
	if i < 0 || i+1 >= len(b) || b[i+1] != '"' {
		return label{}, false
	}
	l = label{name: b[:i]}
	b = b[i+2:]
	for j := 0; j < len(b); j++ {
		switch b[j] {
		case '\\':
			j++
		case '"':
			l.value, l.rest = b[:j], b[j+1:]
			return l, true
		}
	}
	return label{}, false
}

// state turns what was read into an engine's state. An impossible value counts as not known.
func (p *page) state(names loadNames) (router.EngineState, error) {
	e := router.UnknownEngine()
	if p.unused() {
		p[famRunning].n, p[famWaiting].n, p[famUsage].n = 1, 1, 1
	}
	e.Running, e.Waiting = p.count(famRunning), p.count(famWaiting)
	e.KVUsage = p.mean(p.newer(famUsage, famUsageOld))
	if e.KVUsage > 1 {
		e.KVUsage = -1
	}
	e.PrefixQueries, e.PrefixHits = p.count(p.newer(famQueries, famQueriesOld)), p.count(p.newer(famHits, famHitsOld))
	if e.PrefixQueries < e.PrefixHits || e.PrefixHits < 0 {
		e.PrefixQueries, e.PrefixHits = -1, -1
	}
	e.PromptTokens, e.GenerationTokens = p.count(famPrompt), p.count(famGeneration)
	e.PulledTokens, e.ComputedTokens = p.count(famPulled), p.count(famComputed)
	if !p[famQueueTime].below {
		e.PrefillSeconds = p.amount(famPrefillTime)
	}
	e.Prefills, e.PrefillTokens = p.count(famPrefillCount), p.count(famPrefillTokens)
	e.TransferSeconds = p.amount(famTransferTime)
	e.Transfers, e.TransferBytes = p.count(famTransferCount), p.count(famTransferBytes)
	e.Started = p.amount(famStarted)
	// All ranks have blocks of the same size.
	if size := p.mean(famBlockSize); size >= 1 && size <= math.MaxInt32 && size == math.Trunc(size) {
		e.BlockSize = int64(size)
		e.WholeBlocks = p[famPartBlocks].n == 0
	}
	if blocks := p.count(famBlocks); blocks <= math.MaxInt32 {
		e.Blocks = blocks
	}
	return e, p.fault(&e, names)
}

// unused reports that a page lacks the load because there has been none. Where several processes answer for one
// server, vLLM shows a gauge of a rank only once it was set, which is with the rank's first request.
func (p *page) unused() bool {
	load := p[famRunning].n + p[famWaiting].n + p[famUsage].n + p[famUsageOld].n
	return load == 0 && p[famPrompt].n > 0 && p.amount(famPrompt) == 0
}

// newer returns the family to read if the metric has an old name too.
func (p *page) newer(f, old family) family {
	if p[f].n == 0 {
		return old
	}
	return f
}

// amount returns the sum of the samples, or −1 if there are none or one is impossible.
func (p *page) amount(f family) float64 {
	if r := &p[f]; r.n > 0 && !r.wild && !r.below {
		return r.sum
	}
	return -1
}

// count is amount as a whole number. A sum above 2^53 is not known, because a float is not exact there.
func (p *page) count(f family) int64 {
	if v := p.amount(f); v <= 1<<53 {
		return int64(v)
	}
	return -1
}

func (p *page) mean(f family) float64 {
	if v := p.amount(f); v >= 0 {
		return v / float64(p[f].n)
	}
	return -1
}

// fault says in one line what of the engine's load is not known. It is nil if all of it is known.
func (p *page) fault(e *router.EngineState, names loadNames) error {
	var faults []string
	for _, m := range [...]struct {
		name  string
		fam   family
		known bool
	}{
		{names.running, famRunning, e.Running >= 0},
		{names.waiting, famWaiting, e.Waiting >= 0},
		{names.usage, p.newer(famUsage, famUsageOld), e.KVUsage >= 0},
	} {
		switch {
		case m.known:
		case p[m.fam].n == 0:
			faults = append(faults, "no "+m.name)
		default:
			faults = append(faults, m.name+" has an impossible value")
		}
	}
	if faults == nil {
		return nil
	}
	return errors.New(strings.Join(faults, ", "))
}
