package versus

import "time"

// tick is how finely streams are spread over their interval.
const tick = int64(time.Millisecond)

// wheel holds the streams of one interval, spread evenly over it by when they came. A
// stream whose connection has closed leaves at its turn.
type wheel struct {
	slots   [][]*engineConn
	next    int64 // the tick that comes next, counted from epoch
	joined  int
	streams int
}

// add puts a stream into the wheel; an empty one takes the interval of its first.
func (w *wheel) add(c *engineConn, interval time.Duration, now int64) {
	if w.streams == 0 {
		w.slots = make([][]*engineConn, max(1, int64(interval)/tick))
		w.next, w.joined = now/tick+1, 0
	}
	// A stride without a common divisor with the usual lengths visits every slot, and
	// neighbours in time are far apart.
	i := w.joined * 7 % len(w.slots)
	w.slots[i] = append(w.slots[i], c)
	w.joined++
	w.streams++
}

// turn sends the events of all ticks that are due; send reports whether the stream has
// more to come.
func (w *wheel) turn(now int64, send func(*engineConn) bool) {
	for ; w.streams > 0 && w.next <= now/tick; w.next++ {
		slot := w.slots[w.next%int64(len(w.slots))]
		keep := slot[:0]
		for _, c := range slot {
			if send(c) {
				keep = append(keep, c)
			}
		}
		w.streams -= len(slot) - len(keep)
		clear(slot[len(keep):])
		w.slots[w.next%int64(len(w.slots))] = keep
	}
}
