package netio

import "errors"

// BodyDecoder removes the framing of a response body, piece by piece. Unlike fasthttp's reader, it
// calls a body complete only after the empty line of its last chunk, because an engine that dies
// between two chunks must not look like one that has finished. It also follows the chunks of requests.
// The caller sets Chunked, UntilEOF, Ended or Left before the first byte. After that, only Ended and
// Left matter.
type BodyDecoder struct {
	Chunked  bool
	UntilEOF bool  // no framing: the body ends with the connection
	Ended    bool  // nothing of the body is still to come
	Left     int64 // bytes of the body or chunk still to come

	state chunkState
	line  int  // bytes of the size or trailer line seen so far
	digit bool // the size line has a digit
}

type chunkState uint8

const (
	chunkSize    chunkState = iota
	chunkExt                // after the digits, until CR
	chunkSizeLF             // CR of the size line seen
	chunkData               //
	chunkDataCR             // data complete
	chunkDataLF             //
	trailerStart            // at the start of a trailer line
	trailerName             //
	trailerLine             // after the name's colon
	trailerLF               // CR inside a trailer line seen
	trailerEndLF            // CR of the final empty line seen
)

// maxChunkLine bounds a size line with its extension, and a trailer line.
const maxChunkLine = 256

var errChunk = errors.New("malformed chunk framing")

// Decode consumes bytes of src and appends the body bytes among them to dst. It stops at the end of
// the body and does not consume what follows.
func (d *BodyDecoder) Decode(src, dst []byte) (consumed int, out []byte, err error) {
	if d.UntilEOF {
		return len(src), append(dst, src...), nil
	}
	if !d.Chunked {
		n := min(d.Left, int64(len(src)))
		d.Left -= n
		d.Ended = d.Left == 0
		return int(n), append(dst, src[:n]...), nil
	}
	return d.chunks(src, dst, true)
}

// Skip is Decode of a chunked body for a caller that does not need the bytes.
func (d *BodyDecoder) Skip(src []byte) (consumed int, err error) {
	consumed, _, err = d.chunks(src, nil, false)
	return consumed, err
}

func (d *BodyDecoder) chunks(src, dst []byte, keep bool) (consumed int, out []byte, err error) {
	i := 0
	for i < len(src) && !d.Ended {
		if d.state == chunkData {
			n := int(min(d.Left, int64(len(src)-i)))
			if keep {
				dst = append(dst, src[i:i+n]...)
			}
			i += n
			if d.Left -= int64(n); d.Left == 0 {
				d.state = chunkDataCR
			}
			continue
		}
		if err := d.step(src[i]); err != nil {
			return i, dst, err
		}
		i++
	}
	return i, dst, nil
}

// step takes one framing byte.
func (d *BodyDecoder) step(b byte) error {
	switch d.state {
	case chunkSize:
		return d.sizeByte(b)
	case chunkExt:
		if b == '\r' {
			d.state = chunkSizeLF
			return nil
		}
		return d.lineByte(b)
	case chunkSizeLF:
		d.line, d.digit = 0, false
		if d.Left == 0 {
			return d.want(b, '\n', trailerStart)
		}
		return d.want(b, '\n', chunkData)
	case chunkDataCR:
		return d.want(b, '\r', chunkDataLF)
	case chunkDataLF:
		return d.want(b, '\n', chunkSize)
	default:
		return d.trailerByte(b)
	}
}

// trailerByte takes one byte of the trailer section.
func (d *BodyDecoder) trailerByte(b byte) error {
	switch d.state {
	case trailerStart:
		if b == '\r' {
			d.state = trailerEndLF
			return nil
		}
		d.state, d.line = trailerName, 0
		return d.nameByte(b)
	case trailerName:
		if b == ':' {
			d.state = trailerLine
			return d.lineByte(b)
		}
		return d.nameByte(b)
	case trailerLine:
		if b == '\r' {
			d.state = trailerLF
			return nil
		}
		return d.lineByte(b)
	case trailerLF:
		return d.want(b, '\n', trailerStart)
	default: // trailerEndLF
		d.Ended = b == '\n'
		return d.want(b, '\n', trailerEndLF)
	}
}

func (d *BodyDecoder) want(got, want byte, next chunkState) error {
	if got != want {
		return errChunk
	}
	d.state = next
	return nil
}

// lineByte counts a byte of an extension or a trailer. Both are ignored, but their length is bounded.
func (d *BodyDecoder) lineByte(b byte) error {
	if d.line++; d.line > maxChunkLine || b < ' ' && b != '\t' || b == 0x7f {
		return errChunk
	}
	return nil
}

// nameByte takes a byte of a trailer's name. A line that begins with a blank has no name, because it
// would continue the line before it.
func (d *BodyDecoder) nameByte(b byte) error {
	if !nameBytes[b] {
		return errChunk
	}
	return d.lineByte(b)
}

func (d *BodyDecoder) sizeByte(b byte) error {
	var v int64
	switch {
	case b >= '0' && b <= '9':
		v = int64(b - '0')
	case b >= 'a' && b <= 'f':
		v = int64(b-'a') + 10
	case b >= 'A' && b <= 'F':
		v = int64(b-'A') + 10
	case !d.digit:
		return errChunk
	case b == '\r':
		d.state = chunkSizeLF
		return nil
	case b == ';':
		d.state = chunkExt
		return nil
	default:
		return errChunk
	}
	if d.Left > 1<<40 {
		return errChunk
	}
	d.Left, d.digit = d.Left<<4|v, true
	return d.lineByte(b)
}
