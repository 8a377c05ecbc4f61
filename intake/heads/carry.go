package heads

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

// Carry is the header by which a client says whether another engine may go on with its stream if the first one fails.
const Carry = "X-Xpyd-Carry"

// RefusesCarry reports whether the client wants its stream from one engine or not at all.
func RefusesCarry(h *fasthttp.RequestHeader) bool {
	return bytes.EqualFold(h.Peek(Carry), []byte("never"))
}
