// Package gate checks requests before any work is done for them. It checks that a request is HTTP that
// no two readers understand differently, and it checks the keys that clients show. It knows no route
// and no error body.
package gate

import (
	"bytes"
	"errors"
	"mime"
	"net"
	"strings"

	"github.com/valyala/fasthttp"

	"xpyd/intake/upload"
	"xpyd/netio"
)

// Why names the rule that a request has broken.
type Why uint8

const (
	InvalidHTTP Why = iota
	Version
	Method
	Expectation
	HeadersTooLarge
	RequestTimeout
	MediaType
	Coding
	LengthRequired
	BodyTooLarge
	Whys // how many there are
)

// Refusal says why a request is not let in. Message names the rule and never quotes the request.
type Refusal struct {
	Status  int
	Why     Why
	Message string
}

func refuse(status int, why Why, message string) *Refusal {
	return &Refusal{Status: status, Why: why, Message: message}
}

// maxFields is how many header fields a request may have. Real clients send about a dozen. Each field
// makes the walk longer, and without a bound takes more memory.
const maxFields = 100

// fieldBit marks the header fields that the gate checks.
type fieldBit uint8

const (
	fieldHost fieldBit = 1 << iota
	fieldContentLength
	fieldTransferEncoding
	fieldAuthorization
	fieldContentType
	fieldExpect
	fieldAPIKey

	// fieldsOnce are the fields that a request may have at most once. If two readers each took another
	// one of several, they would disagree on the body, the route or the caller.
	fieldsOnce = fieldHost | fieldContentLength | fieldTransferEncoding |
		fieldAuthorization | fieldAPIKey | fieldContentType
)

// CheckRequest is the strict gate of the data port. It runs first in the handler and in ExpectHandler,
// before anything is read from the request's headers. fasthttp accepts Content-Length beside
// Transfer-Encoding, folded lines, spaces in names, any version digits and any method, and it rewrites
// what Peek answers. Only the raw head shows all of these, so CheckRequest walks the raw head, once.
// nil lets the request pass. A refusal always closes the connection, because it is in doubt where the
// body ends.
//
// CheckRequest allocates nothing on a request that passes.
func CheckRequest(h *fasthttp.RequestHeader) *Refusal {
	version := h.Protocol()
	if string(version) != "HTTP/1.1" && string(version) != "HTTP/1.0" {
		return refuse(fasthttp.StatusHTTPVersionNotSupported, Version, "Only HTTP/1.1 and HTTP/1.0 are served.")
	}
	switch string(h.Method()) {
	case fasthttp.MethodPost, fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodOptions:
	default: // methods are case-sensitive, so "post" is another method
		return refuse(fasthttp.StatusMethodNotAllowed, Method, "The method is not one of GET, HEAD, POST and OPTIONS.")
	}
	if !validTarget(h.RequestURI()) {
		return invalidHTTP("The request target must be an absolute path of visible ASCII without a fragment.")
	}
	return checkFields(h.RawHeaders(), string(version) == "HTTP/1.1")
}

// invalidHTTP refuses a request that two parsers may read differently. The text names the rule and
// never quotes the request, whose bytes may be a key.
func invalidHTTP(message string) *Refusal {
	return refuse(fasthttp.StatusBadRequest, InvalidHTTP, message)
}

// validTarget says whether a raw request target is in origin-form, or "*". The absolute and authority
// forms are for proxies that forward to where the client says, which this one never does. Routes are
// compared byte by byte later, so dots, escapes and doubled slashes need no rule of their own.
func validTarget(target []byte) bool {
	if len(target) == 0 || target[0] != '/' && string(target) != "*" {
		return false
	}
	for _, c := range target {
		if c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return true
}

// checkFields walks the raw header block, which consists of CRLF-terminated lines, the last of them
// empty. For a request without fields the block itself is empty.
func checkFields(raw []byte, http11 bool) *Refusal {
	var seen fieldBit
	for n := 0; len(raw) > 0; n++ {
		end := bytes.IndexByte(raw, '\n')
		if end < 1 || raw[end-1] != '\r' {
			return invalidHTTP("Each header line must end in CR LF.")
		}
		line := raw[:end-1]
		raw = raw[end+1:]
		if len(line) == 0 {
			if len(raw) > 0 {
				return invalidHTTP("An empty line stands between header fields.")
			}
			break
		}
		if n == maxFields {
			return headersTooLarge("The request has more than 100 header fields.")
		}
		name, value, ok := netio.SplitField(line)
		if !ok {
			return invalidHTTP("A header line is not a field: a name of token characters, a colon, a value of visible characters, spaces and tabs.")
		}
		field := fieldOf(name)
		if field&seen&fieldsOnce != 0 {
			return invalidHTTP("Host, Content-Length, Transfer-Encoding, Content-Type, Authorization and X-Api-Key may stand once each.")
		}
		seen |= field
		if e := checkValue(field, value); e != nil {
			return e
		}
	}
	return checkSeen(seen, http11)
}

// checkSeen checks the fields of a request together.
func checkSeen(seen fieldBit, http11 bool) *Refusal {
	switch {
	case seen&fieldTransferEncoding != 0 && seen&fieldContentLength != 0:
		return invalidHTTP("Content-Length and Transfer-Encoding may not stand together.")
	case seen&fieldTransferEncoding != 0 && !http11:
		return invalidHTTP("HTTP/1.0 has no Transfer-Encoding.")
	case seen&fieldHost == 0 && http11:
		return invalidHTTP("Host is missing.")
	case seen&fieldExpect != 0 && !http11:
		// RFC 9110 has the server ignore it, but fasthttp cannot. It would answer 100, which a 1.0
		// client takes for the final answer.
		return expectationFailed()
	}
	return nil
}

// checkValue checks the value of one field. field is 0 for a field that nothing here reads. Such a
// field passes, and is never forwarded.
func checkValue(field fieldBit, value []byte) *Refusal {
	switch field {
	case fieldHost:
		if !validHost(value) {
			return invalidHTTP("Host must be a name or an address with an optional port.")
		}
	case fieldContentLength:
		if !netio.AllDigits(value) {
			return invalidHTTP("Content-Length must be one decimal number.")
		}
	case fieldTransferEncoding:
		if !netio.EqualFold(value, "chunked") {
			return invalidHTTP("Transfer-Encoding must be chunked.")
		}
	case fieldExpect:
		if !netio.EqualFold(value, "100-continue") {
			return expectationFailed()
		}
	}
	return nil
}

func expectationFailed() *Refusal {
	return refuse(fasthttp.StatusExpectationFailed, Expectation, "Expect must be 100-continue, on HTTP/1.1.")
}

func headersTooLarge(message string) *Refusal {
	return refuse(fasthttp.StatusRequestHeaderFieldsTooLarge, HeadersTooLarge, message)
}

// fieldOf returns the bit of the field called name, or 0 if the gate does not check it. An underscore
// is not a dash, so Content_Length is another field, which nothing reads.
func fieldOf(name []byte) fieldBit {
	switch len(name) {
	case len("Host"):
		return bitIf(name, "host", fieldHost)
	case len("Expect"):
		return bitIf(name, "expect", fieldExpect)
	case len("X-Api-Key"):
		return bitIf(name, "x-api-key", fieldAPIKey)
	case len("Content-Type"):
		return bitIf(name, "content-type", fieldContentType)
	case len("Authorization"):
		return bitIf(name, "authorization", fieldAuthorization)
	case len("Content-Length"):
		return bitIf(name, "content-length", fieldContentLength)
	case len("Transfer-Encoding"):
		return bitIf(name, "transfer-encoding", fieldTransferEncoding)
	}
	return 0
}

func bitIf(name []byte, lower string, bit fieldBit) fieldBit {
	if netio.EqualFold(name, lower) {
		return bit
	}
	return 0
}

// validHost says whether a Host value is a registered name, an IPv4 address or an IPv6 address in
// brackets, with an optional port.
func validHost(host []byte) bool {
	end, class := 0, &hostBytes
	if len(host) > 0 && host[0] == '[' {
		end, class = 1, &addressBytes
	}
	start := end
	for end < len(host) && class[host[end]] {
		end++
	}
	if end == start {
		return false
	}
	if start == 1 {
		if end == len(host) || host[end] != ']' {
			return false
		}
		end++
	}
	port := host[end:]
	return len(port) == 0 || len(port) <= len(":65535") && port[0] == ':' && netio.AllDigits(port[1:])
}

var (
	// Host names have no underscore, but the names of many compose services do.
	hostBytes    = netio.ByteClass("-._" + netio.Digits + netio.Letters)
	addressBytes = netio.ByteClass(":." + netio.Digits + "ABCDEFabcdef")
)

// Media are the types of body that a route takes.
type Media uint8

const (
	JSON Media = 1 << iota
	Form       // multipart/form-data
)

// CheckBodyHeaders is for the routes that take a body, after CheckRequest. requireLength refuses
// chunked uploads, because no size limit counts the bytes of their extensions.
func CheckBodyHeaders(h *fasthttp.RequestHeader, takes Media, requireLength bool) *Refusal {
	if message := wrongMedia(h.ContentType(), takes); message != "" {
		return refuse(fasthttp.StatusUnsupportedMediaType, MediaType, message)
	}
	if codings := h.PeekAll(fasthttp.HeaderContentEncoding); len(codings) > 0 && (len(codings) > 1 || !knownCoding(codings[0])) {
		return refuse(fasthttp.StatusUnsupportedMediaType, Coding, "Content-Encoding must be gzip or zstd, once, or be left out.")
	}
	const chunked = -1 // what ContentLength answers for a chunked body
	if requireLength && h.ContentLength() == chunked {
		return refuse(fasthttp.StatusLengthRequired, LengthRequired, "The body must be sent with Content-Length.")
	}
	return nil
}

func knownCoding(value []byte) bool {
	_, known := upload.CodingOf(value)
	return known && len(value) > 0
}

// wrongMedia says what Content-Type must be, or returns "" if it is that.
func wrongMedia(contentType []byte, takes Media) string {
	switch {
	case takes&JSON != 0 && jsonContent(contentType), takes&Form != 0 && Boundary(contentType) != "":
		return ""
	case takes == Form:
		return "Content-Type must be multipart/form-data with a boundary."
	case takes == JSON:
		return "Content-Type must be application/json."
	}
	return "Content-Type must be application/json, or multipart/form-data with a boundary."
}

// Boundary returns what separates the fields of a form, or "" if the Content-Type is not that of one. In
// another charset than UTF-8 the names of the fields would not be the ones that the bytes show.
func Boundary(contentType []byte) string {
	media, params, err := mime.ParseMediaType(string(contentType))
	b, charset := params["boundary"], params["charset"]
	if err != nil || media != "multipart/form-data" || len(b) > maxBoundary || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return ""
	}
	for i := range len(b) {
		if !boundaryBytes[b[i]] {
			return ""
		}
	}
	return b
}

// FormType is the Content-Type of a form with the boundary. Engines get this one, and not the client's: they read
// parameters that Boundary does not, such as charset*.
func FormType(boundary string) []byte {
	return []byte(mime.FormatMediaType("multipart/form-data", map[string]string{"boundary": boundary}))
}

// maxBoundary is how long a boundary may be, and boundaryBytes what it may have (RFC 2046), without the space.
const maxBoundary = 70

var boundaryBytes = netio.ByteClass("'()+_,-./:=?" + netio.Digits + netio.Letters)

// jsonContent says whether a Content-Type is application/json, with whatever parameters. JSON is UTF-8, so its charset
// means nothing (RFC 8259), and the body is checked for UTF-8.
func jsonContent(contentType []byte) bool {
	media, _, _ := bytes.Cut(contentType, []byte(";"))
	return netio.EqualFold(bytes.Trim(media, " \t"), "application/json")
}

// FrameError returns the refusal for an error of fasthttp's own reading: of the head, of the first bytes
// of a body (ErrorHandler), or of the body stream. The text of err holds raw bytes of the request, and
// keys may be among them, so it must reach no log and no answer.
func FrameError(err error) *Refusal {
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
	case errors.As(err, &small), errors.Is(err, fasthttp.ErrSmallReadBuffer):
		return headersTooLarge("The request line and the header fields are too large.")
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return refuse(fasthttp.StatusRequestEntityTooLarge, BodyTooLarge, "The body is too large.")
	case errors.Is(err, fasthttp.ErrTimeout), errors.As(err, &netErr) && netErr.Timeout():
		return refuse(fasthttp.StatusRequestTimeout, RequestTimeout, "The request did not arrive in time.")
	case errors.Is(err, netio.ErrFraming):
		return invalidHTTP("Each line must end in CR LF.")
	}
	return invalidHTTP("The request is not HTTP/1.1 or HTTP/1.0.")
}
