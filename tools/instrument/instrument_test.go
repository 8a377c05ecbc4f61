package instrument

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"xpyd/bench/client"
)

// rounds are pairs in which every figure is 100 by vLLM's tool, and one is something else by ours.
func rounds(figure string, ours ...float64) []pair {
	var all []pair
	for _, x := range ours {
		p := pair{map[string]float64{}, map[string]float64{}, map[string]float64{}}
		for _, f := range figures() {
			p.vllm[f], p.again[f], p.xpyd[f] = 99, 101, 100
		}
		p.xpyd[figure] = x
		all = append(all, p)
	}
	return all
}

// TestVerdicts: a figure differs if it does in every round, and is undecided if it does in some.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		ours []float64
		want string
	}{
		"equal":       {[]float64{100, 100, 100, 100, 100}, wordAgrees},
		"within":      {[]float64{98, 102, 99, 101, 100}, wordAgrees},
		"one beyond":  {[]float64{100, 100, 100, 100, 102.1}, wordUndecided},
		"both sides":  {[]float64{90, 110, 90, 110, 90}, wordUndecided},
		"most beyond": {[]float64{103, 103, 103, 103, 101.9}, wordUndecided},
		"above":       {[]float64{103, 104, 105, 102.1, 103}, wordDiffers},
		"below":       {[]float64{97, 96, 95, 97.9, 97}, wordDiffers},
	} {
		var out strings.Builder
		pairs := rounds("p99_itl_ms", c.ours...)
		if v := decide("p99_itl_ms", pairs, 0.02); v.word != c.want || v.noise != 0.01 {
			t.Errorf("%s: %+v, want %s", name, v, c.want)
		}
		if err := judge(pairs, 0.02, &out); errors.Is(err, ErrDiffers) != (c.want == wordDiffers) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: the table lacks %q:\n%s", name, c.want, out.String())
		}
	}
}

func TestAgreeOptions(t *testing.T) {
	for want, o := range map[string]AgreeOptions{
		"--rounds 4: want at least 5, as fewer say nothing about noise": {Engines: "sim", Rounds: 4, Bound: 0.02},
		`--engines "gpu": want sim or real`:                             {Engines: "gpu", Rounds: 5},
		"--bound -1: want at least 0":                                   {Engines: "sim", Rounds: 5, Bound: -1},
	} {
		if err := o.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestCannedAnswersAreWhole: those of the cheap server are what the client takes for whole, in both
// APIs, at the pace.
func TestCannedAnswersAreWhole(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- ServeCanned(ctx, Pace{First: 30 * time.Millisecond, Interval: 10 * time.Millisecond}, write)
	}()
	var told struct{ URL string }
	if err := json.NewDecoder(read).Decode(&told); err != nil {
		t.Fatal(err)
	}
	for _, api := range []string{client.Completions, client.Chat} {
		c, err := client.New(client.Options{URL: told.URL, API: api, Stall: time.Minute, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		model, err := c.FirstModel(ctx)
		if err != nil || model != "canned" {
			t.Fatal(model, err)
		}
		a := c.Do(ctx, "id", c.Body("some words", 5), 5)
		// Both times count from before the request: a client that is held up reads the first token late.
		if a.Failure != "" || a.Output != 5 || len(a.Gaps) != 4 || a.First.Sub(a.Sent) < 30*time.Millisecond || a.Last.Sub(a.Sent) < 70*time.Millisecond {
			t.Errorf("%s: %+v", api, a)
		}
		c.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
