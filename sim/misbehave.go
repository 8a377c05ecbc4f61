package sim

import (
	"bytes"
	"context"
	"errors"
	"net/http"
)

var (
	errFault      = errors.New("fault played")
	errClientGone = errors.New("client gone")
)

// faultBefore plays the faults that hit a request before any work. It returns true if the request
// has ended.
func (g *generation) faultBefore(ctx context.Context) bool {
	if f, ok := g.faults.find(FaultDelay); ok && !g.c.pause(ctx, f.Delay) {
		g.leaveQueue(nil)
		return true
	}
	for _, f := range g.faults {
		switch f.Kind {
		case FaultRST, FaultFIN:
			_ = g.breakOff(f)
		case FaultHang:
			g.emit(PhaseStalled, 0)
			<-ctx.Done()
			g.leaveQueue(nil)
		case FaultStatus:
			g.send(&apiError{status: f.Value, message: "injected fault", kind: faultType(f.Value)})
		case FaultKill:
			if f.At > 0 {
				continue
			}
			g.die("fault:" + f.Kind)
		default:
			continue
		}
		g.rec.Outcome = "fault:" + f.Kind
		return true
	}
	return false
}

func faultType(status int) string {
	switch {
	case status == http.StatusServiceUnavailable:
		return "Service Unavailable" // of a full queue (QueueOverflowError)
	case status >= http.StatusInternalServerError:
		return "InternalServerError"
	case status == http.StatusNotFound:
		return "NotFoundError"
	}
	return "BadRequestError"
}

// stall does nothing until the client or the engine has gone.
func (g *generation) stall(ctx context.Context) {
	g.emit(PhaseStalled, 0)
	<-ctx.Done()
	g.left()
}

// faultInstead plays the faults of streams in place of an answer that is not streamed. It returns
// true if the request has ended.
func (g *generation) faultInstead(ctx context.Context) bool {
	for _, f := range g.faults {
		switch f.Kind {
		case FaultErrFirst, FaultErrDone, FaultErrCut, FaultZero, FaultRoleError:
			g.send(internalError())
		case FaultDie, FaultCut:
			_ = g.breakOff(f)
		case FaultStall:
			g.stall(ctx)
		case FaultKill:
			g.die("fault:" + f.Kind)
		default:
			continue
		}
		g.rec.Outcome = "fault:" + f.Kind
		return true
	}
	return false
}

// breakOff ends the connection without a clean end. The record is filed first, because the client's next
// request may come before this one returns.
func (g *generation) breakOff(f Fault) error {
	g.rec.Outcome = "fault:" + f.Kind
	g.file("")
	if f.Kind == FaultRST || f.End == "rst" {
		g.x.reset()
	} else {
		g.x.hangup()
	}
	return errFault
}

// fail ends a request whose answer could not be written to its end.
func (g *generation) fail() {
	if g.rec.Outcome == "" {
		g.left()
	}
	g.x.last = true
}

// done ends a request that was answered.
func (g *generation) done() {
	if g.rec.Outcome == "" {
		g.rec.Outcome = "ok"
	}
	g.c.metrics.finished(g, g.units[0].reason)
	if g.faults.has(FaultLate) {
		_ = g.x.write([]byte("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate")) // no request asked for it, and the client may have gone
	}
}

// spoil breaks the JSON of an event or answer: its last byte is replaced.
func spoil(payload []byte) {
	payload[len(bytes.TrimRight(payload, "\r\n"))-1] = ')'
}

// writeDripping writes b in small pieces under a slice or drip fault.
func (g *generation) writeDripping(ctx context.Context, b []byte) error {
	f, ok := g.faults.find(FaultDrip)
	if !ok {
		f, ok = g.faults.find(FaultSlice)
	}
	for size := max(f.At, 1); ok && len(b) > size; b = b[size:] {
		if err := g.x.write(b[:size]); err != nil {
			return err
		}
		if !g.c.pause(ctx, f.Delay) {
			return errClientGone
		}
	}
	return g.x.write(b)
}
