package kvparams

import "time"

// Foreign is a Dialect whose engines are not vLLM. They say of themselves by other names what vLLM
// says by its own.
type Foreign interface {
	Dialect
	// Series names what is read of such an engine's metrics.
	Series() Series
	// Vitals is the path that an engine answers at once, if it lives. Its /health may take longer.
	Vitals() string
	// HealthTakes is how long /health of an engine that is well may take.
	HealthTakes() time.Duration
	// Version is the path whose answer is an object with a version.
	Version() string
}

// Quantity is what a metric of an engine tells.
type Quantity uint8

// The quantities.
const (
	Running   Quantity = iota // requests in the batch
	Waiting                   // requests in the engine, but not in the batch; the sum of all series of it
	KVUsage                   // share of the KV cache in use, 0 to 1
	BlockSize                 // tokens of a KV block
	Blocks                    // number of KV blocks
	PromptTokens
	GenerationTokens
)

// Series are the metrics of an engine that is not vLLM. They never change.
type Series struct {
	Prefix string // of all names
	Of     []Metric
	// Whole are labels of gauges. A sample counts if it has none of them, or all with these values.
	// Others repeat what a sample that counts has, or are part of it.
	Whole []Label
}

// Metric is one metric. The first one of each quantity is the one that every engine has.
type Metric struct {
	Name     string // after the prefix, without the _total of a counter
	Quantity Quantity
	Counts   bool // a counter
}

// Label is a label and the value that counts.
type Label struct{ Name, Value string }
