package kvparams

import "bytes"

// NextEventFrom is the length of the first complete server-sent event in buf, with its blank line, or 0 if
// there is none. Lines end in LF or CRLF. A blank line with nothing before it is an event of its own,
// without data. If the last call returned 0 for the first from bytes of buf, it does not search these again.
func NextEventFrom(buf []byte, from int) (n int) {
	if n := lineEnd(buf, 0); n > 0 {
		return n
	}
	// A blank line's two ends span at most 3 bytes, and two of these may have been there already.
	for i := max(from-2, 0); i < len(buf); {
		lf := bytes.IndexByte(buf[i:], '\n')
		if lf < 0 {
			return 0
		}
		i += lf + 1
		if n := lineEnd(buf, i); n > 0 {
			return i + n
		}
	}
	return 0
}

// lineEnd is the length of the line end at i, or 0 if there is none.
func lineEnd(buf []byte, i int) int {
	switch {
	case i < len(buf) && buf[i] == '\n':
		return 1
	case i+1 < len(buf) && buf[i] == '\r' && buf[i+1] == '\n':
		return 2
	}
	return 0
}

// twoWays reports whether clients may read the lines of an event otherwise than this package does. For them a
// CR alone also ends a line, and a byte order mark is no part of one. Engines send neither.
func twoWays(ev []byte) bool {
	if len(ev) > 0 && ev[0] == 0xef {
		return true
	}
	for at := 0; ; {
		cr := bytes.IndexByte(ev[at:], '\r')
		if cr < 0 {
			return false
		}
		if at += cr + 1; at == len(ev) || ev[at] != '\n' {
			return true
		}
	}
}

var dataField = []byte("data:")

// dataOf is the data of one event and its offset in ev. Several data lines are joined by LF in
// fresh memory, and the offset is then -1. It is also -1 for an event without data. failed reports that the event is
// called error, whatever its data says.
func dataOf(ev []byte) (data []byte, at int, failed bool) {
	if bytes.HasPrefix(ev, dataField) {
		end := bytes.IndexByte(ev, '\n')
		if end > 0 && lineEnd(ev, end+1) > 0 {
			data, at = lineData(ev[:end])
			return data, at, false
		}
	}
	first, lines := -1, 0
	for start := 0; start < len(ev); {
		line := ev[start:]
		if lf := bytes.IndexByte(line, '\n'); lf >= 0 {
			line = line[:lf]
		}
		if name, ok := bytes.CutPrefix(line, eventField); ok {
			failed = failed || foldsTo(bytes.Trim(name, " \t\r"), "error")
		} else if bytes.HasPrefix(line, dataField) {
			part, at := lineData(line)
			switch lines++; lines {
			case 1:
				data, first = part, start+at
			case 2: // leave ev as it is
				data, first = append(make([]byte, 0, len(ev)), data...), -1
				fallthrough
			default:
				data = append(append(data, '\n'), part...)
			}
		}
		start += len(line) + 1
	}
	return data, first, failed
}

// isDone reports that data is [DONE], which ends a stream. Some engines write blanks around it.
func isDone(data []byte) bool { return string(bytes.Trim(data, " \t")) == "[DONE]" }

// lineData is the content of a data line and its offset. It leaves out the field name, one space,
// and the CR of the line end.
func lineData(line []byte) (data []byte, at int) {
	at = len(dataField)
	if len(line) > at && line[at] == ' ' {
		at++
	}
	return bytes.TrimSuffix(line[at:], []byte{'\r'}), at
}

// longestDone is a [DONE] in its longest form, with the line end before it and some blanks.
const longestDone = len("\ndata:        [DONE]        \r\n\r\n")

// AppendEnd appends the next piece of an event stream to what is kept of its end, and drops all that EndsDone does
// not need.
func AppendEnd(end, piece []byte) []byte {
	end = append(end, piece[max(0, len(piece)-longestDone):]...)
	return append(end[:0], end[max(0, len(end)-longestDone):]...)
}

// EndsDone reports whether the last event of a stream is [DONE].
func EndsDone(end []byte) bool {
	line := bytes.TrimRight(end, "\r\n")
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	data, ok := bytes.CutPrefix(line, dataField)
	return ok && isDone(data)
}
