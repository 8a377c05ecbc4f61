package instrument

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// AgreeOptions say which figures of xpyd bench serve are compared with those of vllm bench serve.
type AgreeOptions struct {
	Xpyd      string // program
	VLLM      string // program
	Tokenizer string // directory of one for vLLM's tool, which does not start without
	URL       string // of the server; "": Engines are started
	Engines   string // sim or real
	InputLen  int
	Load      Load
	Rounds    int
	Bound     float64 // how far a figure may be off: 0.02 is 2 %
	Dir       string  // of logs and results
}

// Validate reports the first option that cannot be.
func (o *AgreeOptions) Validate() error {
	switch {
	case o.Rounds < leastRounds:
		return fmt.Errorf("--rounds %d: want at least %d, as fewer say nothing about noise", o.Rounds, leastRounds)
	case o.Bound < 0:
		return fmt.Errorf("--bound %v: want at least 0", o.Bound)
	}
	return o.validEngines()
}

func (o *AgreeOptions) validEngines() error {
	if o.Engines != "sim" && o.Engines != "real" {
		return fmt.Errorf("--engines %q: want sim or real", o.Engines)
	}
	return nil
}

// leastRounds is the least number of pairs whose extremes hold the median of all pairs that there
// could be in 15 cases of 16: the chance that all five lie on one side of it is 2 in 32.
const leastRounds = 5

// ErrDiffers is a figure that is off by more than the bound, beyond what the noise explains.
var ErrDiffers = errors.New("figures differ by more than the bound")

// figures are what is compared. The lengths and counts must be equal, as they show that both tools
// sent the same.
func figures() []string {
	all := []string{"completed", "total_input_tokens", "total_output_tokens", "duration", "request_throughput", "output_throughput", "total_token_throughput"}
	for _, metric := range []string{"ttft", "tpot", "itl", "e2el"} {
		for _, stat := range []string{"mean", "median", "p99"} {
			all = append(all, stat+"_"+metric+"_ms")
		}
	}
	return all
}

// Agree runs both tools in turns, prints each figure's ratio, and fails if one differs.
func Agree(ctx context.Context, o AgreeOptions, out io.Writer) (err error) {
	stop, err := o.prepare(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	var pairs []pair
	for round := range o.Rounds {
		p, err := o.round(ctx, round)
		if err != nil {
			return err
		}
		pairs = append(pairs, p)
		fmt.Fprintf(out, "round %d of %d: median TTFT %.2f ms, by vLLM %.2f ms\n", round+1, o.Rounds, p.xpyd["median_ttft_ms"], p.vllm["median_ttft_ms"])
	}
	return judge(pairs, o.Bound, out)
}

// prepare finds the tools, starts the engines where no URL is given, and makes the prompts. stop ends
// what was started, also after an error.
func (o *AgreeOptions) prepare(ctx context.Context) (stop func() error, err error) {
	f := &fleet{url: o.URL, model: o.Load.Model}
	if err = os.MkdirAll(o.Dir, 0o755); err != nil {
		return f.stop, fmt.Errorf("make a place for results: %w", err)
	}
	if o.VLLM == "" || o.Tokenizer == "" {
		if o.VLLM, o.Tokenizer, err = venv(); err != nil {
			return f.stop, err
		}
	}
	switch {
	case o.URL != "":
	case o.Engines == "real":
		f, err = realPair(ctx, o.Xpyd, o.Dir)
	default:
		f, err = simulate(ctx, o.Xpyd, o.Dir)
	}
	if err != nil {
		return f.stop, err
	}
	if o.Engines == "real" && o.Load.Salt == "" { // they cache prefixes
		o.Load.Salt = strconv.FormatInt(time.Now().UnixNano(), 36)
	}
	o.URL, o.Load.Model, o.Load.Prompts = f.url, f.model, filepath.Join(o.Dir, "prompts.jsonl")
	return f.stop, writePrompts(ctx, *o)
}

// pair is what both tools found in a round, and what vLLM's found once more.
type pair struct{ xpyd, vllm, again map[string]float64 }

// round runs vLLM's tool before and after ours, so that a drift of the machine counts for half in
// each, and the two of vLLM's show what noise alone does.
func (o AgreeOptions) round(ctx context.Context, round int) (p pair, err error) {
	for _, step := range []struct {
		tool tool
		name string
		to   *map[string]float64
	}{{vllmTool(o.VLLM, o.Tokenizer), "vllm", &p.vllm}, {xpydTool(o.Xpyd), "xpyd", &p.xpyd}, {vllmTool(o.VLLM, o.Tokenizer), "again", &p.again}} {
		l, name := o.Load, step.name+"-"+strconv.Itoa(round+1)
		l.Seed += round
		if l.Salt != "" {
			l.Salt += "-" + name
		}
		done, err := step.tool.run(ctx, l, o.URL, o.Dir, name)
		if err != nil {
			return p, err
		}
		if done.result["completed"] != float64(l.Count) {
			return p, fmt.Errorf("%s completed %v of %d requests (log: %s)", step.tool.name, done.result["completed"], l.Count, filepath.Join(o.Dir, name+".log"))
		}
		*step.to = done.result
	}
	return p, nil
}

// verdict is what the rounds say of a figure.
type verdict struct {
	figure           string
	vllm, xpyd       float64 // medians
	ratio, low, high float64 // xpyd to vLLM: the median of the rounds, and their extremes
	noise            float64 // how far the two runs of vLLM's tool lay apart, at most
	word             string
}

const (
	wordAgrees    = "agrees"
	wordDiffers   = "DIFFERS"
	wordUndecided = "undecided"
)

// judge prints a line a figure. A figure differs when every round has it beyond the bound on the
// same side, and agrees when every round has it within. What lies between is undecided: the noise
// of the machine does not allow to tell.
func judge(pairs []pair, bound float64, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "figure\tvllm\txpyd\tratio\tleast\tmost\tvllm to itself\t\t")
	counts := map[string]int{}
	for _, figure := range figures() {
		v := decide(figure, pairs, bound)
		counts[v.word]++
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.3f\t%.3f\t%.3f\t±%.1f %%\t%s\t\n", v.figure, v.vllm, v.xpyd, v.ratio, v.low, v.high, v.noise*100, v.word)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the figures: %w", err)
	}
	fmt.Fprintf(out, "%d figures agree within %v %%, %d differ, %d are undecided\n", counts[wordAgrees], bound*100, counts[wordDiffers], counts[wordUndecided])
	if counts[wordDiffers] > 0 {
		return ErrDiffers
	}
	return nil
}

func decide(figure string, pairs []pair, bound float64) verdict {
	v := verdict{figure: figure}
	var ratios, theirs, ours []float64
	for _, p := range pairs {
		between := (p.vllm[figure] + p.again[figure]) / 2
		ratios = append(ratios, p.xpyd[figure]/between)
		theirs, ours = append(theirs, between), append(ours, p.xpyd[figure])
		v.noise = max(v.noise, abs(p.vllm[figure]-p.again[figure])/between/2)
	}
	v.vllm, v.xpyd, v.ratio = median(theirs), median(ours), median(ratios)
	v.low, v.high = slices.Min(ratios), slices.Max(ratios)
	switch {
	case v.low >= 1-bound && v.high <= 1+bound:
		v.word = wordAgrees
	case v.low > 1+bound || v.high < 1-bound:
		v.word = wordDiffers
	default:
		v.word = wordUndecided
	}
	return v
}

func abs(x float64) float64 { return max(x, -x) }

func median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
