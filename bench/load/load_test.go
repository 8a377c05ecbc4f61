package load

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// inf is the rate of a plan without a rate.
var inf = math.Inf(1)

func TestValidate(t *testing.T) {
	for want, p := range map[string]Plan{
		"rate 0: want more than 0 requests a second, or inf":                                                             {Burstiness: 1, Count: 1},
		"rate NaN: want more than 0 requests a second, or inf":                                                           {Rate: math.NaN(), Burstiness: 1, Count: 1},
		"burstiness -1: want more than 0":                                                                                {Rate: 1, Burstiness: -1, Count: 1},
		"a count, a cap and a duration cannot be negative":                                                               {Rate: 1, Burstiness: 1, Count: -1},
		"want a number of requests, a duration, or both":                                                                 {Rate: 1, Burstiness: 1},
		`ramp "steep": want linear or exponential`:                                                                       {Rate: inf, Burstiness: 1, Count: 1, Ramp: Ramp{"steep", 1, 2}},
		"ramp from 0 to 2: want more than 0 requests a second":                                                           {Rate: inf, Burstiness: 1, Count: 1, Ramp: Ramp{Linear, 0, 2}},
		"a duration without a rate and without a cap would send without end: give a rate, a cap or a number of requests": {Rate: inf, Burstiness: 1, Duration: time.Second},
	} {
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", p, err, want)
		}
	}
}

// TestScheduleSpansTheRate: n requests take n/rate, whatever the gaps and the seed.
func TestScheduleSpansTheRate(t *testing.T) {
	for _, burstiness := range []float64{0.3, 1, 4, inf} {
		for seed := range uint64(3) {
			p := Plan{Rate: 8, Burstiness: burstiness, Count: 400, Seed: seed}
			dues := p.Schedule()
			if len(dues) != 400 || !slices.IsSorted(dues) {
				t.Fatalf("burstiness %v: %d dues, sorted %v", burstiness, len(dues), slices.IsSorted(dues))
			}
			if last := dues[399]; (last - 50*time.Second).Abs() > time.Microsecond {
				t.Errorf("burstiness %v: the last is due after %v, want 50s", burstiness, last)
			}
		}
	}
	p := Plan{Rate: 8, Burstiness: 1, Duration: 10 * time.Second}
	if n := len(p.Schedule()); n != 80 {
		t.Errorf("%d requests in 10 s at 8/s", n)
	}
}

// TestGapsAreGamma: their squared coefficient of variation is 1/burstiness.
func TestGapsAreGamma(t *testing.T) {
	for _, burstiness := range []float64{0.5, 1, 2, 10} {
		p := Plan{Rate: 1, Burstiness: burstiness, Count: 40000, Seed: 7}
		dues := p.Schedule()
		sum, squares := 0.0, 0.0
		for i := 1; i < len(dues); i++ {
			gap := (dues[i] - dues[i-1]).Seconds()
			sum += gap
			squares += gap * gap
		}
		n := float64(len(dues) - 1)
		mean := sum / n
		if cv := (squares/n - mean*mean) / (mean * mean); math.Abs(cv*burstiness-1) > 0.05 {
			t.Errorf("burstiness %v: squared coefficient of variation %v", burstiness, cv)
		}
	}
}

// TestGapsAreNumpys: numpy.random.gamma(shape, 1) after numpy.random.seed(7), by numpy 2.
func TestGapsAreNumpys(t *testing.T) {
	for shape, want := range map[float64][]float64{
		0.3: {0.00018846862401596527, 0.06401262465525534, 0.01247819975509855, 0.2754585073669024, 0.040073711232954654, 0.01580180279027438},
		0.5: {0.005822955027179585, 0.19220265421259491, 0.07205948603813278, 0.5212000571033304, 0.08302788640056277, 0.04553330912242556},
		1:   {0.07937690952144451, 1.5137586745587868, 0.5769818641565158, 1.2854185268208107, 3.816236211795087, 0.7732642768895222},
		2:   {1.1346080050647798, 0.8415510205840329, 1.669334732271681, 3.355902293405376, 2.568318638541829, 2.4078158390795985},
		10:  {15.932902766128823, 8.289169405915763, 7.415422533179343, 9.673090216120645, 13.188457876308787, 11.656471404469368},
	} {
		d := newDraws(7)
		for i, x := range want {
			if got := d.gamma(shape); math.Abs(got/x-1) > 1e-12 {
				t.Errorf("shape %v: draw %d is %v, numpy's %v", shape, i, got, x)
			}
		}
	}
}

func TestScheduleIsOfItsSeed(t *testing.T) {
	at := func(seed uint64) []time.Duration {
		p := Plan{Rate: 5, Burstiness: 1, Count: 20, Seed: seed}
		return p.Schedule()
	}
	if !slices.Equal(at(1), at(1)) || slices.Equal(at(1), at(2)) {
		t.Error("a schedule is not a function of its seed")
	}
}

func TestRamp(t *testing.T) {
	p := Plan{Rate: inf, Burstiness: inf, Count: 101, Ramp: Ramp{Linear, 10, 110}}
	dues := p.Schedule()
	first, last := dues[1]-dues[0], dues[100]-dues[99]
	if want := time.Second / 11; (first - want).Abs() > time.Microsecond {
		t.Errorf("second gap %v, want %v", first, want)
	}
	if want := time.Second / 110; (last - want).Abs() > time.Microsecond {
		t.Errorf("last gap %v, want %v", last, want)
	}
	p.Ramp.Strategy = Exponential
	dues = p.Schedule()
	if middle, want := dues[50]-dues[49], time.Duration(float64(time.Second)/math.Sqrt(1100)); (middle - want).Abs() > time.Microsecond {
		t.Errorf("middle gap %v, want %v", middle, want)
	}
}

// gather runs a plan with requests that take that long, and returns their turns in order.
func gather(ctx context.Context, p *Plan, took time.Duration) (turns []Turn, most int32, start time.Time) {
	var mu sync.Mutex
	var open, peak atomic.Int32
	start = time.Now()
	p.Run(ctx, start, func(_ context.Context, turn Turn) {
		peak.Store(max(peak.Load(), open.Add(1)))
		time.Sleep(took)
		open.Add(-1)
		mu.Lock()
		defer mu.Unlock()
		turns = append(turns, turn)
	})
	slices.SortFunc(turns, func(a, b Turn) int { return a.Index - b.Index })
	return turns, peak.Load(), start
}

// TestOpenLoop: requests are due, and sent, whether or not earlier ones have been answered.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Plan{Rate: 10, Burstiness: inf, Count: 20}
		turns, most, start := gather(t.Context(), &p, time.Hour)
		if len(turns) != 20 || most != 20 {
			t.Fatalf("%d requests, %d at once", len(turns), most)
		}
		for i, turn := range turns {
			if want := time.Duration(i+1) * 100 * time.Millisecond; turn.Due.Sub(start) != want || turn.Start != turn.Due {
				t.Errorf("request %d: due after %v, start after %v, want %v", i, turn.Due.Sub(start), turn.Start.Sub(start), want)
			}
		}
	})
}

// TestCap: at most that many requests are open. A request starts when a place is free, and its due time
// does not change.
func TestCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Plan{Rate: 10, Burstiness: inf, Count: 6, Concurrency: 2}
		turns, most, start := gather(t.Context(), &p, time.Second)
		if most != 2 {
			t.Errorf("%d at once", most)
		}
		for i, want := range []time.Duration{100, 200, 1100, 1200, 2100, 2200} {
			if got := turns[i].Start.Sub(start); got != want*time.Millisecond {
				t.Errorf("request %d started after %v, want %v", i, got, want*time.Millisecond)
			}
			if got := turns[i].Due.Sub(start); got != time.Duration(i+1)*100*time.Millisecond {
				t.Errorf("request %d due after %v", i, got)
			}
		}
	})
}

// TestDurationEndsTheSending: requests that are open then are still answered.
func TestDurationEndsTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Plan{Rate: inf, Burstiness: 1, Duration: 10 * time.Second, Concurrency: 3}
		turns, _, start := gather(t.Context(), &p, 4*time.Second)
		if len(turns) != 9 || time.Since(start) != 12*time.Second {
			t.Errorf("%d requests in %v, want 9 in 12s", len(turns), time.Since(start))
		}
	})
}

func TestInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []int{0, 2} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			p := Plan{Rate: 4, Burstiness: inf, Count: 1000, Concurrency: limit}
			turns, _, _ := gather(ctx, &p, 450*time.Millisecond)
			if len(turns) < 3 || len(turns) > 4 {
				t.Errorf("cap %d: %d requests in a second at 4/s", limit, len(turns))
			}
			cancel()
		}
	})
}
