package proxy

import (
	"testing"
	"time"
)

// A body that comes fast at first and then slowly gets no more time than any other.
func TestBodyPace(t *testing.T) {
	start := time.Now()
	tests := map[string]struct {
		stall time.Duration
		came  []int // bytes, one second after the other
		want  time.Duration
	}{
		"nothing":            {stall: time.Hour, want: 30 * time.Second},
		"a steady rate":      {stall: time.Hour, came: []int{bodyRate, bodyRate, bodyRate}, want: 33 * time.Second},
		"half the rate":      {stall: time.Hour, came: []int{bodyRate / 2, bodyRate / 2}, want: 31 * time.Second},
		"16 MiB, then creep": {stall: time.Hour, came: []int{16 << 20, 1, 1, 1}, want: 31 * time.Second},
		"silence":            {stall: 10 * time.Second, came: []int{16 << 20}, want: 11 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pace{limit: 30 * time.Second, stall: tt.stall}
			now := start
			at := p.next(now, 0)
			for _, n := range tt.came {
				now = now.Add(time.Second)
				at = p.next(now, n)
			}
			if got := at.Sub(start).Round(time.Millisecond); got != tt.want {
				t.Errorf("given up after %v, want %v", got, tt.want)
			}
		})
	}
}
