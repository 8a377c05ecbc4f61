package instrument

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// CostOptions say what the tools are compared at.
type CostOptions struct {
	AgreeOptions
	Guidellm string // program; "": it is left out
}

// Validate reports the first option that cannot be.
func (o *CostOptions) Validate() error {
	if o.Rounds < 1 {
		return fmt.Errorf("--rounds %d: want at least 1", o.Rounds)
	}
	return o.validEngines()
}

// Cost runs each tool in turns at the same load, and prints the CPU that it takes for an event. What
// its start takes does not count. Of a tool that does not say when its load begins, a run of one
// request tells that first.
func Cost(ctx context.Context, o CostOptions, out io.Writer) (err error) {
	stop, err := o.prepare(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	tools := []tool{xpydTool(o.Xpyd), vllmTool(o.VLLM, o.Tokenizer)}
	if o.Guidellm != "" {
		tools = append(tools, guidellmTool(o.Guidellm, o.Tokenizer, o.InputLen))
	}
	costs := make([]cost, len(tools))
	for round := range o.Rounds {
		for i, t := range tools {
			if err := costs[i].measure(ctx, t, o.AgreeOptions, round); err != nil {
				return err
			}
			fmt.Fprintf(out, "round %d of %d: %s %.1f µs an event\n", round+1, o.Rounds, t.name, costs[i].event[round])
		}
	}
	return printCosts(tools, costs, out)
}

// cost is what a tool took, by round.
type cost struct {
	event  []float64 // µs of CPU
	memory []float64 // MB
	start  float64   // seconds of CPU, of a tool without a mark
}

func (c *cost) measure(ctx context.Context, t tool, o AgreeOptions, round int) error {
	name := t.name + "-" + strconv.Itoa(round+1)
	if round == 0 && t.mark == "" {
		one := o.Load
		one.Count, one.OutputLen, one.Concurrency = 1, 1, 1
		start, err := t.run(ctx, one, o.URL, o.Dir, name+"-start")
		if err != nil {
			return err
		}
		c.start = start.cpu
	}
	full, err := t.run(ctx, o.Load, o.URL, o.Dir, name)
	if err != nil {
		return err
	}
	if full.result["completed"] != float64(o.Load.Count) {
		return fmt.Errorf("%s completed %v of %d requests (log: %s)", t.name, full.result["completed"], o.Load.Count, filepath.Join(o.Dir, name+".log"))
	}
	c.event = append(c.event, (full.cpu-c.start)*1e6/float64(o.Load.Count*o.Load.OutputLen))
	c.memory = append(c.memory, full.memory/1e6)
	return nil
}

func printCosts(tools []tool, costs []cost, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(table, "| tool\t| CPU an event\t| to xpyd, by round\t| memory\t|\n|---\t|---\t|---\t|---\t|")
	for i, c := range costs {
		low, high := c.event[0]/costs[0].event[0], c.event[0]/costs[0].event[0]
		for round, x := range c.event {
			low, high = min(low, x/costs[0].event[round]), max(high, x/costs[0].event[round])
		}
		fmt.Fprintf(table, "| %s\t| %.0f µs\t| %.1f to %.1f\t| %.0f MB\t|\n", tools[i].name, median(c.event), low, high, median(c.memory))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the costs: %w", err)
	}
	return nil
}

// guidellmTool makes its own prompts, while it runs.
func guidellmTool(program, tokenizer string, inputLen int) tool {
	return tool{name: "guidellm", program: program, env: []string{"HF_HUB_OFFLINE=1", "GUIDELLM__MAX_WORKER_PROCESSES=1"}, read: readGuidellm,
		args: func(l Load, url, dir, out string) []string {
			format := map[string]string{"completions": "/v1/completions", "chat": "/v1/chat/completions"}[l.API]
			return []string{"run", "--disable-progress",
				"--backend", fmt.Sprintf("kind=openai_http,target=%s,model=%s,request_format=%s,timeout_connect=60", url, l.Model, format),
				"--profile", fmt.Sprintf("kind=concurrent,streams=%d", max(l.Concurrency, 1)), "--constraint", fmt.Sprintf("kind=max_requests,count=%d", l.Count),
				"--tokenizer", "kind=huggingface_auto,model=" + tokenizer,
				"--data", fmt.Sprintf("kind=synthetic_text,prompt_tokens=%d,output_tokens=%d", inputLen, l.OutputLen),
				"--output", "kind=json,path=" + filepath.Join(dir, out)}
		}}
}

// readGuidellm reads how many requests guidellm's report counts as good.
func readGuidellm(path string) (map[string]float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a result: %w", err)
	}
	var r struct {
		Benchmarks []struct {
			Metrics struct {
				Requests struct{ Successful *float64 } `json:"request_totals"`
			}
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read the result %s: %w", path, err)
	}
	if len(r.Benchmarks) != 1 || r.Benchmarks[0].Metrics.Requests.Successful == nil {
		return nil, errors.New(path + " has no count of requests: another version has written it")
	}
	return map[string]float64{"completed": *r.Benchmarks[0].Metrics.Requests.Successful}, nil
}
