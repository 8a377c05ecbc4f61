package verify

import "context"

// transport judges the speed of the transfers of the shared leg. A slow one still answers: UCX takes TCP, or the memory of the
// host, when the link that it should take does not work, and says so only in its log.
func transport(r *run, ctx context.Context) Row {
	l := r.shared(ctx)
	if l.err != nil {
		return failed(l.err)
	}
	d := &l.decode
	seconds, bytes := d.value[transferSeconds], d.value[transferBytes]
	if !d.has[transferSeconds] || !d.has[transferBytes] || seconds <= 0 {
		return open("the decode engines count no bytes of transfers")
	}
	speed := bytes / seconds / 1e9
	if speed < r.GBps {
		return bad("%.3g GB/s in transfers of %.1f MB, want %g: the blocks take another link, such as TCP or host memory, or are too few to tell; measure with xpyd check --bandwidth, and see docs/troubleshooting.md",
			speed, bytes/1e6/max(d.value[transfers], 1), r.GBps)
	}
	return good("%.3g GB/s, at least %g", speed, r.GBps)
}
