package heads

import "bytes"

// The parts of a traceparent of version 00: version, trace id, parent id and flags.
const (
	traceparentLen = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")
	traceIDAt      = len("00-")
	parentIDAt     = traceIDAt + 33
	flagsAt        = parentIDAt + 17
	sampled        = 1
)

// TraceID returns the trace id out of header lines as Forward.Append writes them, or "" if they have no
// traceparent whose trace is recorded.
func TraceID(fields []byte) string {
	for len(fields) > 0 {
		var line []byte
		line, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		if v, ok := bytes.CutPrefix(line, []byte("Traceparent: ")); ok {
			return traceIDOf(v)
		}
	}
	return ""
}

func traceIDOf(v []byte) string {
	if len(v) < traceparentLen || string(v[:2]) == "ff" || v[2] != '-' || v[parentIDAt-1] != '-' || v[flagsAt-1] != '-' {
		return ""
	}
	if len(v) > traceparentLen && (string(v[:2]) == "00" || v[traceparentLen] != '-') {
		return ""
	}
	id, last := v[traceIDAt:parentIDAt-1], v[traceparentLen-1:traceparentLen]
	if !lowerHex(id) || !lowerHex(v[parentIDAt:flagsAt-1]) || !lowerHex(v[flagsAt:traceparentLen]) || len(bytes.Trim(id, "0")) == 0 {
		return ""
	}
	if bytes.IndexByte([]byte("0123456789abcdef"), last[0])&sampled == 0 {
		return ""
	}
	return string(id)
}

func lowerHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
