package soak

import (
	"sync"
	"time"
)

// stage is a part of a soak. It decides what the proxy must do. Outside stageFaults and
// stageHealing no request may fail.
type stage int

const (
	stageWarm     stage = iota // pools fill, and latency is not judged
	stageStandard              // no faults except those of clients
	stageFaults
	stageHealing  // faults are over, but their effects may still show
	stageRecovery // no faults, no errors
	stageAfter    // no more requests
	stages
)

func (s stage) String() string {
	return [...]string{"warm-up", "standard", "faults", "healing", "recovery", "after"}[s]
}

// calm reports whether only clients do anything wrong in the stage.
func (s stage) calm() bool { return s != stageFaults && s != stageHealing }

// plan says when the stages of a run begin. It is fixed before the first request, except for what
// comes after the faults. On a busy machine the last fault takes its time, and only then the
// healing begins. Copies share that.
type plan struct {
	begin time.Time
	until [stages]time.Duration // from begin; the last stage has no end
	storm *overrun
}

// overrun is how much longer than planned the faults last.
type overrun struct {
	mu      sync.Mutex
	running bool
	by      time.Duration // set when they are over
}

// warmUp is how long the load runs before the requested duration.
const warmUp = 3 * time.Second

// newPlan has 20 % standard, 60 % faults and 20 % after them. The first 10 to 30 s of the last part
// are for healing, because an ejection ends after up to 6 s and a ramp takes 2 s.
func newPlan(begin time.Time, d time.Duration) plan {
	p := plan{begin: begin, storm: &overrun{}}
	// In a very short run slow readers learn late what the faults have broken.
	healing := min(max(d/20, 10*time.Second), 30*time.Second, max(d*3/20, 2*time.Second))
	p.until[stageWarm] = min(warmUp, d/4)
	p.until[stageStandard] = p.until[stageWarm] + d/5
	p.until[stageFaults] = p.until[stageStandard] + d*3/5
	p.until[stageHealing] = p.until[stageFaults] + healing
	p.until[stageRecovery] = max(p.until[stageWarm]+d, p.until[stageHealing]+d/20)
	return p
}

// at returns the stage at a moment.
func (p plan) at(t time.Time) stage {
	for s := range stageAfter {
		if t.Before(p.end(s)) {
			return s
		}
	}
	return stageAfter
}

// faultsBegin and faultsEnd are called when the first fault may come and when all are undone.
func (p plan) faultsBegin() {
	p.storm.mu.Lock()
	defer p.storm.mu.Unlock()
	p.storm.running = true
}

func (p plan) faultsEnd() {
	p.storm.mu.Lock()
	defer p.storm.mu.Unlock()
	p.storm.running, p.storm.by = false, p.since()
}

// late returns how much later than planned the stages after the faults are. While the faults go on,
// none of these has begun.
func (p plan) late() time.Duration {
	if p.storm == nil {
		return 0
	}
	p.storm.mu.Lock()
	defer p.storm.mu.Unlock()
	if p.storm.running {
		return p.since() + 1
	}
	return p.storm.by
}

// since returns the time since the planned end of the faults.
func (p plan) since() time.Duration { return max(time.Since(p.begin)-p.until[stageFaults], 0) }

// start returns the start of a stage.
func (p plan) start(s stage) time.Time {
	if s == stageWarm {
		return p.begin
	}
	return p.end(s - 1)
}

func (p plan) end(s stage) time.Time {
	if s < stageFaults {
		return p.begin.Add(p.until[s])
	}
	return p.begin.Add(p.until[s] + p.late())
}

// calmFor reports whether the whole span lies in one calm part of the run.
func (p plan) calmFor(from, to time.Time) bool {
	return to.Before(p.start(stageFaults)) || from.After(p.end(stageHealing))
}

// These are the invariants of a soak, in the order of the report.
const (
	invOutcomes = "I1 outcomes"
	invBytes    = "I2 bytes"
	invHandles  = "I3 handles"
	invBlocks   = "I4 blocks"
	invGauges   = "I5 gauges"
	invLeaks    = "I6 leaks"
	invHealth   = "I7 health"
	invLatency  = "I8 latency"
	invRetries  = "I9 retries"
	invLogs     = "I10 logs"
	invHarness  = "harness" // the run itself did not test what it should
)

func invariants() []string {
	return []string{invOutcomes, invBytes, invHandles, invBlocks, invGauges, invLeaks, invHealth, invLatency, invRetries, invLogs, invHarness}
}
