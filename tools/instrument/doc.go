// Package instrument judges xpyd bench serve itself: how much load one process makes without
// falling behind, what that costs beside other load generators, and whether its figures are those
// of vllm bench serve.
package instrument
