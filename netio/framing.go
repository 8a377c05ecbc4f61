package netio

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// Framing checks the bytes of a client before fasthttp sees them. fasthttp accepts a bare LF as the end
// of a request line or of a trailer section. It also accepts folded trailers, and blanks after the size
// of a chunk. Another reader on the way may not, and then the two disagree on where the next request
// begins. So Framing refuses each line that does not end in CR LF, and each chunk that BodyDecoder does
// not accept. It refuses at once, because a client that sends such a head would otherwise wait for the
// header timeout.
//
// The gate judges the contents of a head. Framing reads only the two fields that say where the body
// ends. It keeps no bytes except the beginning of a field that arrives in parts. The zero value stands
// for the beginning of a connection.
type Framing struct {
	refused bool // for good; fasthttp gets nothing more
	inHead  bool // the request line has come
	unclear bool // the gate refuses this head, so it is not known whether a body follows
	fields  bodyField
	length  int64       // of the body, still to come
	chunks  BodyDecoder // while it is chunked
	cr      bool        // the last byte of a head was CR
	head    int         // bytes of the head that have come, while it is not complete
	seen    int         // bytes of the line that have come
	line    [maxFramingField]byte
}

// bodyField is one of the fields that say where a body ends.
type bodyField uint8

const (
	fieldContentLength bodyField = 1 << iota
	fieldTransferEncoding
)

func bodyFieldOf(name []byte) bodyField {
	switch {
	case EqualFold(name, "content-length"):
		return fieldContentLength
	case EqualFold(name, "transfer-encoding"):
		return fieldTransferEncoding
	}
	return 0
}

// maxFramingField bounds the line of Content-Length and of Transfer-Encoding.
const maxFramingField = 64

// ErrFraming is the error of a read after Framing has refused something.
var ErrFraming = errors.New("a line does not end in CR LF, or a chunk is not framed exactly")

// Refused reports that Framing has refused something, and that it reads no more.
func (f *Framing) Refused() bool { return f.refused }

// inBody reports that what comes next is of a body.
func (f *Framing) inBody() bool { return !f.inHead && (f.length > 0 || f.chunks.Chunked) }

// between reports that nothing of the next request has come.
func (f *Framing) between() bool {
	return !f.refused && !f.inHead && !f.unclear && !f.cr && f.seen == 0 && !f.inBody()
}

// Read is src.Read up to the first byte that Framing refuses.
func (f *Framing) Read(src io.Reader, p []byte) (int, error) {
	if f.refused {
		return 0, ErrFraming
	}
	n, err := src.Read(p)
	return f.Take(p[:n]), err
}

// Take returns how many bytes of p fasthttp may have. If Take refuses a byte, that byte is the last of
// them, and Take replaces it by NUL. fasthttp needs this byte, because it answers only a request that
// has begun, and it takes an error at the beginning of a trailer for the end of the body. A NUL never
// ends anything.
func (f *Framing) Take(p []byte) int {
	for i := 0; i < len(p); {
		n, ok := f.step(p[i:])
		if i += n; !ok {
			p[i] = 0
			f.refused = true
			return i + 1
		}
	}
	return len(p)
}

// step accepts the next part of p, and reports whether the byte after it is accepted too.
func (f *Framing) step(p []byte) (n int, ok bool) {
	switch {
	case f.inHead:
		return f.stepHead(p)
	case f.unclear:
		return 0, false
	case f.length > 0:
		n = int(min(f.length, int64(len(p))))
		f.length -= int64(n)
		return n, true
	case f.chunks.Chunked:
		n, err := f.chunks.Skip(p)
		if f.chunks.Ended {
			f.chunks = BodyDecoder{}
		}
		return n, err == nil
	}
	return f.stepHead(p)
}

// stepHead takes a line of a head, or the part of it that has come. The only CR of a line is the one
// before its LF.
func (f *Framing) stepHead(p []byte) (n int, ok bool) {
	part, end := p, bytes.IndexByte(p, '\n')
	if end >= 0 {
		part = p[:end]
	}
	cr := bytes.IndexByte(part, '\r')
	switch {
	case f.cr && end != 0:
		return 0, false
	case cr >= 0 && cr+1 < len(part):
		return cr + 1, false
	case end >= 0 && cr < 0 && !f.cr:
		return end, false
	case cr >= 0:
		part = part[:cr]
	}
	if end < 0 {
		f.keep(part)
		f.cr = cr >= 0
		f.head += len(p)
		return len(p), true
	}
	line := part
	if f.seen > 0 { // it came in parts
		f.keep(part)
		line = f.line[:min(f.seen, len(f.line))]
	} else {
		f.seen = len(part)
	}
	f.endLine(line)
	f.cr, f.seen = false, 0
	if f.head += end + 1; !f.inHead {
		f.head = 0
	}
	return end + 1, true
}

// keep holds the beginning of a line.
func (f *Framing) keep(part []byte) {
	if f.seen < len(f.line) {
		copy(f.line[f.seen:], part)
	}
	f.seen += len(part)
}

// endLine judges a whole line of f.seen bytes. line holds at least as many of them as a framing field
// may have.
func (f *Framing) endLine(line []byte) {
	switch {
	case f.seen > 0 && f.inHead:
		f.field(line)
	case f.seen > 0:
		f.inHead, f.unclear, f.fields = true, false, 0
	case f.inHead: // the empty line after the head
		f.inHead = false
		f.chunks.Chunked = f.fields&fieldTransferEncoding != 0 && !f.unclear
	}
}

// field reads where the body ends. The gate says what is wrong with a field.
func (f *Framing) field(line []byte) {
	field := bodyFieldOf(line[:max(bytes.IndexByte(line, ':'), 0)])
	if field == 0 {
		return
	}
	f.unclear = f.unclear || f.fields != 0 || f.seen > maxFramingField
	f.fields |= field
	_, value, ok := SplitField(line)
	if !ok || field == fieldTransferEncoding && !EqualFold(value, "chunked") {
		f.unclear = true
	}
	if field == fieldContentLength && !f.unclear {
		length, err := strconv.ParseInt(string(value), 10, 64)
		f.length, f.unclear = length, err != nil || !AllDigits(value)
	}
}
