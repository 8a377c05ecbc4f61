package bench

import (
	"time"

	"xpyd/bench/result"
)

// pulse measures how late this process wakes up. It reads events as late as timers, so the pulse shows
// what the lateness of requests does not: a machine too busy to read in time.
type pulse struct {
	stop chan struct{}
	late chan []float64 // ms, of each beat
}

// beat is the time between two looks at the clock.
const beat = 10 * time.Millisecond

func startPulse() *pulse {
	p := &pulse{stop: make(chan struct{}), late: make(chan []float64, 1)}
	go p.run()
	return p
}

func (p *pulse) run() {
	var late []float64
	for {
		due := time.Now().Add(beat)
		select {
		case <-time.After(beat):
			late = append(late, float64(time.Since(due).Microseconds())/1000)
		case <-p.stop:
			p.late <- late
			return
		}
	}
}

// end is the 99th percentile of how late this process woke up.
func (p *pulse) end() time.Duration {
	close(p.stop)
	ms := result.NewValues(<-p.late).Percentile(99)
	return time.Duration(ms * float64(time.Millisecond))
}
