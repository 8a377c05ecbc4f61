package kvparams

import "time"

// Foreign is a Dialect whose engines are not vLLM. Their metrics and pages have other names than
// vLLM's.
type Foreign interface {
	Dialect
	// Series names the metrics of such an engine that xpyd reads.
	Series() Series
	// Vitals is the path that an engine answers at once if it is alive. Its /health may take longer.
	Vitals() string
	// HealthTakes is how long /health of a healthy engine may take.
	HealthTakes() time.Duration
	// Version is the path whose answer is an object with a version, and with the number of the engine's data-parallel
	// ranks as RanksMember.
	Version() string
	RanksMember() string
}

// Quantity is what a metric of an engine measures.
type Quantity uint8

// The quantities.
const (
	Running   Quantity = iota // requests in the batch
	Waiting                   // requests in the engine, but not in the batch; the sum of all its series
	KVUsage                   // share of the KV cache in use, 0 to 1
	BlockSize                 // tokens of a KV block
	Blocks                    // number of KV blocks
	PromptTokens
	GenerationTokens
)

// Series are the metrics of an engine that is not vLLM. They never change.
type Series struct {
	Prefix string // prefix of all names
	Of     []Metric
	// Whole are labels of gauges. A sample counts if it has none of them, or all of them with these
	// values. Other samples repeat one that counts, or are part of it.
	Whole []Label
	// Rank is the label by which a sample is of one data-parallel rank.
	Rank string
}

// Metric is one metric. Every engine has the first metric of each quantity.
type Metric struct {
	Name     string // after the prefix, without the _total of a counter
	Quantity Quantity
	Counts   bool // a counter
}

// Label is a label and the value that counts.
type Label struct{ Name, Value string }
