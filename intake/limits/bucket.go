package limits

import "time"

// bucket is what is left of a limit for a minute. It fills evenly, from empty to full in a minute, and
// is full at first. It goes below 0 when more was spent than had been foreseen.
type bucket struct {
	left float64
	at   time.Time // of the last look; zero before the first
}

// fill brings left up to date.
func (b *bucket) fill(perMinute int, now time.Time) {
	limit := float64(perMinute)
	switch since := now.Sub(b.at); {
	case b.at.IsZero():
		b.left = limit
	case since <= 0:
		return // another request has looked since
	default:
		b.left = min(limit, b.left+limit*since.Minutes())
	}
	b.at = now
}

// wait returns the time until n are left.
func (b *bucket) wait(n float64, perMinute int) time.Duration {
	return time.Duration((n - b.left) / float64(perMinute) * float64(time.Minute))
}
