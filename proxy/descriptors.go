package proxy

import (
	"strconv"

	"github.com/valyala/fasthttp"
)

// outOfDescriptors is the refusal where the process, not a backend, is at its limit.
func outOfDescriptors() *apiError {
	return newError(fasthttp.StatusServiceUnavailable, codeOverloaded, "", "xpyd has no file descriptor left; try again").retryAfter(1)
}

// noDescriptorAnswer is what a client gets for whom there is no descriptor, without a word of
// its request.
func noDescriptorAnswer() []byte {
	e := outOfDescriptors()
	body := e.appendBody(nil)
	return []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: " +
		strconv.Itoa(e.RetryAfter) + "\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + string(body))
}
