package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"xpyd/bench/dataset"
)

// vllmFlag is a flag of vllm bench serve that is no alias of a flag of serve. People paste their
// command lines, and these must run or say why they do not.
type vllmFlag struct {
	alone   bool   // takes no value
	ignored string // why the flag has no effect here; "": the flag is refused
	instead string // what to do instead of a flag that is refused
}

const (
	ownTokenizer = "the server's own tokenizer counts"
	textOnly     = "prompts are text"
	promptsFile  = `write the prompts to a file, a line each, for --dataset prompts`
	laterReports = "xpyd bench report prints and plots saved runs"
	fixedLabels  = "call the members timestamp, input_length, output_length and hash_ids"
)

func vllmFlags() map[string]vllmFlag {
	all := map[string]vllmFlag{
		"tokenizer":               {ignored: ownTokenizer},
		"tokenizer-mode":          {ignored: ownTokenizer},
		"trust-remote-code":       {alone: true, ignored: ownTokenizer},
		"skip-tokenizer-init":     {alone: true, ignored: ownTokenizer},
		"use-beam-search":         {alone: true, ignored: "vllm bench serve does nothing with it, either"},
		"plot-timeline":           {alone: true, ignored: laterReports},
		"plot-dataset-stats":      {alone: true, ignored: laterReports},
		"timeline-itl-thresholds": {ignored: laterReports},
		"no-stream":               {alone: true, ignored: "no dataset is loaded from a hub"},
		"skip-chat-template":      {alone: true, ignored: "no template is applied on this side; --api chat has the server apply its own"},

		"profile":              {alone: true, instead: "POST /start_profile and /stop_profile around the run"},
		"probe-request-rate":   {instead: "run a second xpyd bench serve beside this one"},
		"lora-modules":         {instead: "run once for each, with --model NAME"},
		"lora-assignment":      {instead: "run once for each module, with --model NAME"},
		"chat-template-kwargs": {instead: `the server applies the template: --extra-body '{"chat_template_kwargs": {…}}'`},
		"best-of":              {instead: `--extra-body '{"best_of": …}', if the server takes it`},
		"random-batch-size":    {instead: "only completions are measured, a prompt each"},
		"no-reranker":          {alone: true, instead: "only completions are measured"},

		"enable-multimodal-chat":         {alone: true, instead: textOnly},
		"custom-ensure-client-side-data": {alone: true, instead: textOnly},
	}
	for why, names := range map[string]string{
		textOnly: "random-mm-base-items-per-request random-mm-num-mm-items-range-ratio random-mm-limit-mm-per-prompt random-mm-bucket-config asr-max-audio-len-sec asr-min-audio-len-sec",
		promptsFile: "hf-subset hf-split hf-name hf-output-len bfcl-categories blazedit-min-distance blazedit-max-distance " +
			"spec-bench-output-len spec-bench-category speed-bench-dataset-subset speed-bench-output-len speed-bench-category",
		fixedLabels: "timed-trace-label-timestamp timed-trace-label-input-length timed-trace-label-output-length timed-trace-label-hash-ids",
	} {
		for _, name := range strings.Fields(names) {
			all[name] = vllmFlag{instead: why}
		}
	}
	return all
}

// vllmDatasets are the datasets of vllm bench serve that serve lacks, with what to do instead.
func vllmDatasets() map[string]string {
	return map[string]string{
		"burstgpt": "make a trace of it, for --dataset trace",
		"hf":       promptsFile, "spec_bench": promptsFile, "speed_bench": promptsFile,
		"random-mm": textOnly, "random-rerank": "only completions are measured", "custom_audio": textOnly, "custom_image": textOnly,
	}
}

// addVLLM adds the flags that only vllm bench serve has, and does not list them in the help.
func (f *benchFlags) addVLLM(s *pflag.FlagSet) {
	var names []string
	add := func(name string) string {
		names = append(names, name)
		return name
	}
	for name, v := range vllmFlags() {
		if v.alone {
			s.Bool(add(name), false, "")
		} else {
			s.String(add(name), "", "")
		}
	}
	for name := range samplingFlags() {
		s.String(add(name), "", "")
	}
	s.StringVar(&f.servedName, add("served-model-name"), "", "")
	s.BoolVar(&f.saveResult, add("save-result"), false, "")
	s.BoolVar(&f.append, add("append-result"), false, "")
	s.BoolVar(&f.selfTimed, add("self-timed"), false, "")
	s.BoolVar(&f.o.Untimed, add("no-self-timed"), false, "")
	s.IntVar(&f.readySeconds, add("ready-check-timeout-sec"), 0, "")
	s.IntVar(&f.o.Dataset.BlockLen, add("timed-trace-chunk-hash-size"), 16, "")
	s.Float64Var(&f.tickSeconds, add("timed-trace-sec-multiplier"), 1, "")
	for _, name := range names {
		s.Lookup(name).Hidden = true
	}
}

// samplingFlags are the flags that become members of each request, with the members' names.
func samplingFlags() map[string]string {
	return map[string]string{
		"top-p": "top_p", "top-k": "top_k", "min-p": "min_p", "logprobs": "logprobs",
		"frequency-penalty": "frequency_penalty", "presence-penalty": "presence_penalty", "repetition-penalty": "repetition_penalty",
	}
}

// readVLLM refuses flags that cannot work here, notes those without effect, and reads vLLM's names of
// datasets. It comes before all other readers.
func (f *benchFlags) readVLLM(s *pflag.FlagSet) (err error) {
	all := vllmFlags()
	s.Visit(func(flag *pflag.Flag) {
		switch v, ok := all[flag.Name]; {
		case !ok || err != nil:
		case v.ignored == "":
			err = fmt.Errorf("--%s of vllm bench serve is not here: %s", flag.Name, v.instead)
		default:
			f.notes = append(f.notes, fmt.Sprintf("--%s has no effect: %s", flag.Name, v.ignored))
		}
	})
	if err != nil {
		return err
	}
	if f.servedName != "" {
		f.o.Client.Model = f.servedName
	}
	if f.out == "" && (f.saveResult || f.append || f.resultFile != "") {
		f.out = "."
	}
	if f.o.Client.KeepText = f.detailed && f.out != ""; f.detailed && f.out == "" {
		f.notes = append(f.notes, "--save-detailed has no effect: nothing is saved without --out or --save-result")
	}
	f.o.Ready = time.Duration(f.readySeconds) * time.Second
	if f.selfTimed && (s.Changed("rate") || f.o.Untimed) {
		return errors.New("--self-timed sends at the trace's times: leave --rate and --no-self-timed out")
	}
	return f.readVLLMDataset(s)
}

// readVLLMDataset makes a dataset with vLLM's name do what it does in vLLM.
func (f *benchFlags) readVLLMDataset(s *pflag.FlagSet) error {
	d := &f.o.Dataset
	if instead := vllmDatasets()[d.Kind]; instead != "" {
		return fmt.Errorf("dataset %s of vllm bench serve is not here: %s", d.Kind, instead)
	}
	set := func(name string, value *int, other int) {
		if !s.Changed(name) {
			*value = other
		}
	}
	switch d.Kind {
	case "custom":
		d.Kind = dataset.Prompts
		set("output-len", &d.OutputLen, dataset.DefaultLimit)
		d.OutputLen = max(d.OutputLen, 0) // -1: the file's
		f.keepLen = true
		return nil
	case "prefix_repetition":
		d.Kind = dataset.Random
		set("prefix-len", &d.PrefixLen, 256)
		set("input-len", &d.InputLen, 256)
		set("prefixes", &d.Prefixes, 10)
		f.obeyEOS = true
	case "timed_trace":
		d.Kind = dataset.Trace
		d.Tick = time.Duration(f.tickSeconds * float64(time.Second))
		return nil
	}
	d.BlockLen = 0 // only timed_trace has it
	return nil
}

// readSampling makes sampling flags members of each request. Those of --extra-body win.
func (f *benchFlags) readSampling(s *pflag.FlagSet) (err error) {
	members := map[string]any{}
	for name, member := range samplingFlags() {
		if !s.Changed(name) || err != nil {
			continue
		}
		text := s.Lookup(name).Value.String()
		x, bad := strconv.ParseFloat(text, 64)
		if bad != nil {
			err = fmt.Errorf("--%s %q: want a number", name, text)
		}
		members[member] = x
	}
	if _, ok := members["logprobs"]; ok && f.o.Client.API != "completions" {
		delete(members, "logprobs")
		f.notes = append(f.notes, `--logprobs has no effect on a chat, as in vllm bench serve: --extra-body '{"logprobs": true, "top_logprobs": …}'`)
	}
	if f.extra != "" {
		if bad := json.Unmarshal([]byte(f.extra), &members); bad != nil {
			return fmt.Errorf("--extra-body: want a JSON object: %w", bad)
		}
	}
	if len(members) > 0 {
		f.o.Client.Extra = members
	}
	return err
}

// readRatio reads --range-ratio: a number, or vLLM's object with two numbers.
func (f *benchFlags) readRatio() error {
	d := &f.o.Dataset
	var two struct{ Input, Output *float64 }
	if json.Unmarshal([]byte(f.ratio), &two) == nil && two.Input != nil && two.Output != nil {
		d.RangeRatio, d.OutputRatio = *two.Input, two.Output
		return nil
	}
	var err error
	if d.RangeRatio, err = strconv.ParseFloat(f.ratio, 64); err != nil {
		return fmt.Errorf(`--range-ratio %q: want a number, or {"input": A, "output": B}`, f.ratio)
	}
	switch {
	case d.RangeRatio == 1:
		d.RangeRatio = 0
		f.notes = append(f.notes, "--range-ratio 1 means lengths that are all the same, as in benchmark_serving.py of 2024 and 2025")
	case !(d.RangeRatio >= 0 && d.RangeRatio < 1):
		return fmt.Errorf("--range-ratio %s: want at least 0 and less than 1, or 1 for lengths that are all the same", f.ratio)
	}
	return nil
}

// testRun makes the initial single prompt test run of vllm bench serve the default of the formats that are put beside
// its blocks. Without it the first TTFT has what connections and caches cost once.
func (f *benchFlags) testRun(s *pflag.FlagSet) {
	if format := f.format; !s.Changed("warmups") && (format == "vllm" || format == "seed") {
		f.o.Warmups = 1
	}
}
