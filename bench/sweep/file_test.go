package sweep

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const whole = `
name: small
targets:
  - {name: 1P2D, url: "http://a:1", gpus: 6}
  - {name: plain, url: "http://b:2", engines: ["P=http://p:1", "D1:4=http://d:1"], up: ./up.sh, ready: 90s}
workloads:
  - {name: long, input_len: 64, output_len: 8}
  - {kind: prefill-only, input_len: 32, loads: [{duration: 10s, rate: 5}]}
loads:
  - {concurrency: [2, 4], prompts_per_concurrency: 5}
  - {rate: 3, num_prompts: [6, 12], burstiness: 0.5}
`

// TestWrongFiles: an error names the line, the key and the expected value.
func TestWrongFiles(t *testing.T) {
	change := func(from, to string) string {
		if !strings.Contains(whole, from) {
			t.Fatalf("%q is not in the file", from)
		}
		return strings.Replace(whole, from, to, 1)
	}
	for want, text := range map[string]string{
		`s.yaml: line 4: no key is called uri, the nearest is url`:                                                          change(`url: "http://a:1"`, `uri: "http://a:1"`),
		`s.yaml: line 4: "six": want a number`:                                                                              change("gpus: 6", "gpus: six"),
		`s.yaml: line 5: "90": want a time such as 30s`:                                                                     change("ready: 90s", "ready: 90"),
		`s.yaml: line 4: targets[0].url: URL "a:1": want http://host:port`:                                                  change(`"http://a:1"`, `"a:1"`),
		`s.yaml: line 5: targets[1].name: "1P2D" is listed twice`:                                                           change("name: plain", "name: 1P2D"),
		`s.yaml: line 5: targets[1].engines[1]: "D1:x": the GPUs of D1: want a number above 0`:                              change("D1:4=", "D1:x="),
		`s.yaml: line 8: workloads[1].kind: "prefill": want mixed, prefill-only, decode-only or decode-cached`:              change("prefill-only", "prefill"),
		`s.yaml: line 7: workloads[0]: 0+64 tokens in and 0 out: want at least 1 of each`:                                   change(", output_len: 8", ""),
		`s.yaml: line 7: workloads[0]: dataset sharegpt needs a file`:                                                       change("name: long", "name: long, dataset: sharegpt"),
		`s.yaml: line 10: loads[0].concurrency[1]: 0: want at least 1`:                                                      change("[2, 4]", "[2, 0]"),
		`s.yaml: line 11: loads[1].rate[0]: -3: want more than 0 requests a second`:                                         change("rate: 3", "rate: -3"),
		`s.yaml: line 11: loads[1].burstiness: 0: want more than 0`:                                                         change("burstiness: 0.5", "burstiness: 0"),
		`s.yaml: line 10: loads[0]: want num_prompts, prompts_per_concurrency or duration`:                                  change(", prompts_per_concurrency: 5", ""),
		`s.yaml: line 8: workloads[1].loads[0]: a duration without a rate and without a concurrency would send without end`: change("duration: 10s, rate: 5", "duration: 10s"),
		`s.yaml: line 2: repeats: -1: want at least 1`:                                                                      change("name: small", "repeats: -1"),
		`s.yaml: line 7: no key is called gpu, the nearest is gpus; line 8: no key is called zzz`:                           "name: x\ntargets:\n  - name: a\n    url: http://a:1\n  - name: b\n    url: http://b:1\n    gpu: 1\n    zzz: 2\n",
		`s.yaml: line 4: no key is called gpu; line 5: "x": want a number`:                                                  "name: x\nworkloads:\n  - name: a\n    gpu: 1\n    range_ratio: x\n",
		`s.yaml: line 3 is in a second YAML document: want one; remove the --- above it`:                                    "name: x\n---\nrepeats: 2\n",
		`s.yaml: did not find expected node content`:                                                                        "targets: [",
	} {
		if _, err := Parse("s.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(want, "s.yaml: ")) || !strings.HasPrefix(err.Error(), "s.yaml: ") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	for want, change := range map[string]func(f *File){
		"no target: want targets in the file, --target NAME=URL, or --url": func(f *File) { f.Targets = nil },
		"target 1P2D has no url":                         func(f *File) { f.Targets[0].URL = "" },
		"no workload: want at least one under workloads": func(f *File) { f.Workloads = nil },
		"workload long: file: stat /nope/x.json: no such file or directory; give one that exists": func(f *File) {
			f.Workloads[0].Dataset, f.Workloads[0].File = "sharegpt", "/nope/x.json"
		},
		"two cells would have the same file name, 1P2D--long--conc2-n10--r1: the load is there twice, or two names differ only in punctuation": func(f *File) { f.Loads = append(f.Loads, f.Loads[0]) },
	} {
		f := parsed(t, whole)
		change(f)
		if err := f.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func parsed(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("s.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOpenNamesTheSweep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "night.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(whole, "name: small\n", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil || f.Name != "night" {
		t.Errorf("%+v %v", f, err)
	}
	if _, err := Open(path + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
}

// TestTopologies: names, engines and keys give the numbers of engines and GPUs of a target.
func TestTopologies(t *testing.T) {
	for name, want := range map[string][4]float64{
		"1P2D": {1, 2, 0, 0}, "2p1d-tcp": {2, 1, 0, 0}, "4xtp2": {0, 0, 4, 8}, "baseline_2xtp4": {0, 0, 2, 8},
		"p2xtp1-d1xtp4": {2, 1, 0, 6}, "spread-p1xtp4-d1xtp4-tcp": {1, 1, 0, 8}, "vllm": {}, "p2dx": {},
	} {
		f := &File{}
		if err := f.AddTarget(name + "=http://a:1"); err != nil {
			t.Fatal(err)
		}
		if x := f.Targets[0]; [4]float64{float64(x.Prefill), float64(x.Decode), float64(x.Collocated), x.GPUs} != want {
			t.Errorf("%s: %+v, want %v", name, x, want)
		}
	}
	f := parsed(t, whole)
	if x := f.Targets[1]; x.Prefill != 1 || x.Decode != 1 || x.GPUs != 0 {
		t.Errorf("one of its engines does not say how many GPUs it has: %+v", x)
	}
	if err := f.AddTarget("1P2D:12=http://c:3"); err != nil || len(f.Targets) != 2 || f.Targets[0].URL != "http://c:3" || f.Targets[0].GPUs != 12 {
		t.Errorf("%+v %v", f.Targets, err)
	}
}

// TestPresets: each has the cells that its document has figures for, and no others. Further ones are opt-in.
func TestPresets(t *testing.T) {
	for name, want := range map[string]struct {
		cells    []string
		further  int // cells, with those above
		requests int // of the cells above
		full     bool
		asked    string // prompts and their prefix, what is printed and at which percentiles
	}{
		"llm-d-pd": {[]string{"10k-1k 10000/1000 conc1-n32"}, 6, 32, true, "random 0 [ttft tpot itl e2el] [0.1 1 5 10 25 75 90 95 99 99.9]"},
		"gpt-oss": {[]string{
			"1k-1k 1000/1000 conc50-n500", "1k-1k 1000/1000 conc100-n1000", "1k-1k 1000/1000 conc200-n2000",
			"1k-1k 1000/1000 conc300-n3000", "1k-1k 1000/1000 conc400-n4000",
		}, 5, 10500, true, "random 0 [ttft tpot itl e2el] [0.1 1 5 10 25 50 75 90 95 99 99.9]"},
		"mooncake": {[]string{
			"sonnet-1024-6 1024/6 rate2-n200", "sonnet-256-6 256/6 rate2-n200", "sonnet-256-6 256/6 rate4-n200",
			"sonnet-256-6 256/6 rate6-n200", "sonnet-256-6 256/6 rate8-n200",
		}, 8, 1000, false, "sonnet 50 [ttft tpot itl] [99]"},
		"cloudera": {[]string{
			"1024-1024 1024/1024 n10", "1024-1024 1024/1024 n50", "1024-1024 1024/1024 n100", "1024-1024 1024/1024 n200", "1024-1024 1024/1024 n500",
			"4096-4096 4096/4096 n10", "4096-4096 4096/4096 n50", "4096-4096 4096/4096 n100",
			"1024-7168 1024/7168 n10", "1024-7168 1024/7168 n50", "1024-7168 1024/7168 n100",
			"7168-1024 7168/1024 n100",
			"1024-128 1024/128 n500", "1024-128 1024/128 n1000", "1024-128 1024/128 n2000",
		}, 35, 4780, false, "random 0 [ttft tpot itl] [99]"},
	} {
		f := preset(t, name)
		var got []string
		requests := 0
		for _, c := range f.Cells() {
			if c.Repeat > 1 {
				continue
			}
			o := f.Options(&c)
			requests += c.NumPrompts
			got = append(got, fmt.Sprintf("%s %d/%d %s", c.Workload.Name, o.Dataset.InputLen, o.Dataset.OutputLen, c.Load()))
			if o.Client.IgnoreEOS != want.full || o.Warmups != 1 || o.Client.API != "completions" {
				t.Errorf("%s %s: %+v, %d warm-ups", name, c.File(), o.Client, o.Warmups)
			}
			if asked := fmt.Sprint(o.Dataset.Kind, " ", o.Dataset.PrefixLen, " ", o.Metrics, " ", o.Percentiles); asked != want.asked || o.Dataset.RangeRatio != 0 {
				t.Errorf("%s %s: %s ±%v, want %s", name, c.File(), asked, o.Dataset.RangeRatio, want.asked)
			}
		}
		if !slices.Equal(got, want.cells) || requests != want.requests || f.Repeats != 3 || f.About == "" {
			t.Errorf("%s: %d requests, %d repeats, about %q, cells\n%s", name, requests, f.Repeats, f.About, strings.Join(got, "\n"))
		}
		f.AddFurther()
		if n := len(f.Cells()); n != 3*want.further {
			t.Errorf("%s: %d cells with the further ones, want 3 × %d", name, n, want.further)
		}
	}
	if n := len(Presets()); n != 5 {
		t.Errorf("%d presets", n)
	}
	if _, err := Preset("../presets/ray"); err == nil {
		t.Error("a path is a preset")
	}
}

// preset is one with a target, as its users have it.
func preset(t *testing.T, name string) *File {
	t.Helper()
	f, err := Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AddTarget("mine=http://a:1"); err != nil {
		t.Fatal(err)
	}
	f.LeaveTemplates()
	if err := f.Validate(); err != nil || f.Name != name {
		t.Fatal(f.Name, err)
	}
	return f
}

// TestPresetOfRay: it has the study's loads, four baselines of whole engines and three placements.
func TestPresetOfRay(t *testing.T) {
	var got []string
	f, asked := preset(t, "ray"), map[string]string{}
	for _, c := range f.Cells() {
		if c.Workload.Name == "mixed" && c.Repeat == 1 {
			got = append(got, c.Load())
		}
		o := f.Options(&c)
		asked[c.Workload.Name] = fmt.Sprint(o.Dataset.InputLen, "/", o.Dataset.OutputLen, " ", o.Client.IgnoreEOS, " ", o.Prime, " ", o.Warmups, " ", o.Metrics, " ", o.Percentiles)
	}
	for name, want := range map[string]string{"mixed": "5000/250 true false", "prefill-only": "5000/1 true false", "decode-only": "1/250 true false", "decode-cached": "5000/250 true true"} {
		if want += " 1 [ttft tpot itl e2el] [50 90 99]"; asked[name] != want {
			t.Errorf("%s: %q, want %q", name, asked[name], want)
		}
	}
	if want := "conc4-n20 conc8-n40 conc16-n80 conc32-n160 conc48-n240 conc64-n320 rate1-n500 rate2-n500 rate3-n500 rate4-n500 rate5-n500 rate6-n500 rate7-n500 rate8-n500 rate9-n500 rate10-n500"; strings.Join(got, " ") != want {
		t.Errorf("%v", got)
	}
	ray, err := Preset("ray")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]Target{}
	for _, target := range ray.Targets {
		of[target.Name] = target
	}
	if n := len(of); n != 24 || len(ray.Targets) != n { // 4 baselines, 3 placements and 17 ratios
		t.Errorf("%d topologies: %v", n, of)
	}
	for name, want := range map[string][4]float64{
		"p1xtp2-d1xtp4": {1, 1, 0, 6}, "p4xtp1-d1xtp4": {4, 1, 0, 8}, "p3xtp2-d1xtp2": {3, 1, 0, 8}, "p1xtp2-d3xtp2": {1, 3, 0, 8}, "p4xtp1-d1xtp2": {4, 1, 0, 6},
		"8xtp1": {0, 0, 8, 8}, "4xtp2": {0, 0, 4, 8}, "2xtp4": {0, 0, 2, 8}, "1xtp8": {0, 0, 1, 8}, "p2xtp1-d3xtp2": {2, 3, 0, 8},
		"pack-p1xtp4-d1xtp4": {1, 1, 0, 8}, "spread-p1xtp4-d1xtp4": {1, 1, 0, 8}, "spread-tcp-p1xtp4-d1xtp4": {1, 1, 0, 8},
	} {
		if x := of[name]; [4]float64{float64(x.Prefill), float64(x.Decode), float64(x.Collocated), x.GPUs} != want {
			t.Errorf("%s: %+v, want %v", name, x, want)
		}
	}
}

// TestFurtherLoads: --load picks loads by name, also those that are opt-in.
func TestFurtherLoads(t *testing.T) {
	f := preset(t, "llm-d-pd")
	if err := f.OnlyLoads([]string{"conc8-n80", "conc1-n32"}); err != nil {
		t.Fatal(err)
	}
	if cells := f.Cells(); len(cells) != 6 || cells[0].Load() != "conc1-n32" || cells[1].Load() != "conc8-n80" {
		t.Errorf("%d cells, %+v", len(cells), cells)
	}
	want := `--load "conc9": the sweep has conc1-n32, conc8-n80, conc32-n320, conc64-n640, conc128-n1280, conc256-n2560`
	if err := f.OnlyLoads([]string{"conc9"}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestOrder: without commands targets alternate; with commands each target has its cells in a row. No
// target is always first.
func TestOrder(t *testing.T) {
	f := parsed(t, strings.Replace(whole, "up: ./up.sh, ", "", 1))
	f.Repeats = 2
	names := func() (all []string) {
		for _, c := range f.Cells() {
			all = append(all, c.Target.Name)
		}
		return all
	}
	const a, b = "1P2D", "plain"
	if got, want := names(), []string{a, b, b, a, a, b, b, a, a, b, b, a, a, b, b, a, a, b, b, a}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	f.Targets[1].Up = "./up.sh"
	if got, want := names(), slices.Concat(slices.Repeat([]string{a}, 5), slices.Repeat([]string{b}, 10), slices.Repeat([]string{a}, 5)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSeeds: targets get different prompts at the same times, and a seed in the file fixes both.
func TestSeeds(t *testing.T) {
	f := parsed(t, whole)
	cells := f.Cells()
	a, again := f.Options(&cells[0]), f.Options(&cells[0])
	other := cells[0]
	other.Target = &f.Targets[1]
	if b := f.Options(&other); a.TimesSeed != b.TimesSeed || a.TimesSeed == 0 || a.Seed == b.Seed || a.Seed == again.Seed {
		t.Errorf("seeds %d %d %d, of times %d %d", a.Seed, again.Seed, b.Seed, a.TimesSeed, b.TimesSeed)
	}
	seed := uint64(7)
	f.Seed = &seed
	a, again = f.Options(&cells[0]), f.Options(&cells[0])
	if a.Seed != again.Seed || a.Seed == f.Options(&other).Seed {
		t.Error("with a seed prompts are not fixed, or shared between targets")
	}
}

// TestShorten: cells that are the same after capping are measured once.
func TestShorten(t *testing.T) {
	f := parsed(t, whole)
	f.Shorten(3, 6)
	if err := f.Validate(); err != nil || f.Repeats != 3 {
		t.Fatal(err)
	}
	for _, c := range f.Cells() {
		if c.NumPrompts > 6 || c.NumPrompts == 0 {
			t.Errorf("%s has %d prompts", &c, c.NumPrompts)
		}
	}
	if err := f.Only([]string{"short"}); err == nil || err.Error() != `--workload "short": the sweep has none of that name` {
		t.Error(err)
	}
	if err := f.Only([]string{"prefill-only"}); err != nil || len(f.Workloads) != 1 {
		t.Error(err)
	}
}
