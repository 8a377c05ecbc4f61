package heads

import (
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Priority is the field that says how urgent a request is. Engines read it too.
const Priority = "X-Vllm-Priority"

// PriorityOf returns the priority that the head gives, which goes before that of the body. As in vLLM,
// lower is sooner, and what is no number does not count.
func PriorityOf(h *fasthttp.RequestHeader) (n int, ok bool) {
	v := h.Peek(Priority)
	if len(v) == 0 {
		return 0, false
	}
	n, err := strconv.Atoi(string(v))
	return n, err == nil
}

// Timeout is the field in which a client says how long it will wait, in seconds.
const Timeout = "X-Request-Timeout"

// TimeoutOf returns how long the client will wait, at most most. ok is false if what it says is no
// number of seconds above 0.
func TimeoutOf(h *fasthttp.RequestHeader, most time.Duration) (d time.Duration, ok bool) {
	v := h.Peek(Timeout)
	if len(v) == 0 {
		return most, true
	}
	s, err := strconv.ParseFloat(string(v), 64)
	if err != nil || !(s > 0) || math.IsInf(s, 1) { // NaN is not above 0
		return most, false
	}
	if s >= most.Seconds() {
		return most, true
	}
	return time.Duration(s * float64(time.Second)), true
}
