package upstream

import (
	"errors"
	"io"
	"net/http"
	"slices"

	"xpyd/netio"
)

// ErrTooLarge says that an answer is larger than the caller accepts.
var ErrTooLarge = errors.New("answer larger than limits.answer")

// ReadAll reads the rest of the body into dst. If it returns ErrTooLarge, dst has what was read.
func (x *Exchange) ReadAll(dst []byte, limit int64) ([]byte, error) {
	for {
		var err error
		if x.direct() {
			dst, err = x.fillDirect(dst, limit)
		} else {
			dst, err = x.Fill(dst)
		}
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		if int64(len(dst)) > limit {
			return dst, ErrTooLarge
		}
	}
}

// ReadAnswer is ReadAll for an answer whose status the caller judges first. If an error answer is
// larger than limit, ReadAnswer sets TooLarge and drops the answer.
func (x *Exchange) ReadAnswer(dst []byte, limit int64) ([]byte, error) {
	dst, err := x.ReadAll(dst, limit)
	if x.TooLarge = errors.Is(err, ErrTooLarge) && x.Head.Status != http.StatusOK; x.TooLarge {
		return dst[:0], nil
	}
	return dst, err
}

// direct reports that more of the body is still to come than an inbox holds, and that all of it is the
// body's: it has a length. P's answer to a long prompt is such a body.
func (x *Exchange) direct() bool {
	return !x.body.Ended && !x.body.Chunked && x.body.Left > netio.InboxSize && len(x.conn.in.Unread) == 0
}

// mostTrusted is how much room an announced length gets at once, in bytes. Beyond, the buffer doubles as
// bytes come.
const mostTrusted = 1 << 20

// fillDirect is Fill for such a body, without an inbox between the socket and dst. It leaves the last byte to
// Fill, which also finds bytes that a backend may have written after the body.
func (x *Exchange) fillDirect(dst []byte, limit int64) ([]byte, error) {
	most := min(x.body.Left-1, limit+1-int64(len(dst)))
	if room := int64(cap(dst) - len(dst)); room <= most && (room == 0 || most < mostTrusted) {
		dst = slices.Grow(dst, int(min(most+1, max(int64(len(dst)), mostTrusted))))
	}
	n, err := x.conn.Read(dst[len(dst):min(cap(dst), len(dst)+int(most))])
	x.body.Left -= int64(n)
	if err != nil {
		err = x.cutOff(err)
	}
	return dst[:len(dst)+n], err
}
