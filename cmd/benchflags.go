package cmd

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"xpyd/bench"
	benchclient "xpyd/bench/client"
	"xpyd/bench/dataset"
	"xpyd/bench/engines"
	benchload "xpyd/bench/load"
)

// benchFlags are the flags of bench serve before they are parsed.
type benchFlags struct {
	o      bench.Options
	ramp   benchload.Ramp
	out    string
	format string
	noBar  bool
	// detailed adds a list of each request, with the answers' texts, to vLLM's result file.
	detailed bool

	rate, burstiness, temperature, extra string
	ratio                                string
	host, port, endpoint, backend        string
	headers, goodput, metadata           []string
	engineURLs                           []string
	engines                              []engines.Spec
	claims                               []claim // which flags the arguments after them belong to
	keyFile                              string
	percentiles, metrics                 []string

	// Only in vllm bench serve, see benchvllm.go.
	servedName, resultFile        string
	saveResult, append, selfTimed bool
	readySeconds                  int
	tickSeconds                   float64
	keepLen, obeyEOS              bool     // the dataset has its own lengths; does not ask for full answers
	notes                         []string // flags without effect, to print
}

// benchAliases are the names that vllm bench serve has for the same flags.
func benchAliases() map[string]string {
	return map[string]string{
		"base-url": "url", "dataset-name": "dataset", "dataset-path": "file",
		"request-rate": "rate", "max-concurrency": "concurrency", "num-warmups": "warmups",
		"metric-percentiles": "percentiles", "percentile-metrics": "metrics", "result-dir": "out",
		"random-input-len": "input-len", "random-output-len": "output-len", "random-prefix-len": "prefix-len", "random-range-ratio": "range-ratio",
		"sonnet-input-len": "input-len", "sonnet-output-len": "output-len", "sonnet-prefix-len": "prefix-len",
		"sharegpt-output-len": "output-len", "custom-output-len": "output-len",
		"prefix-repetition-prefix-len": "prefix-len", "prefix-repetition-suffix-len": "input-len",
		"prefix-repetition-num-prefixes": "prefixes", "prefix-repetition-output-len": "output-len", "disable-shuffle": "in-order",
		"ramp-up-strategy": "ramp", "ramp-up-start-rps": "ramp-from", "ramp-up-end-rps": "ramp-to", "disable-tqdm": "no-progress",
	}
}

func (f *benchFlags) add(s *pflag.FlagSet) {
	aliases := benchAliases()
	s.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		name = strings.ReplaceAll(name, "_", "-") // vLLM takes both
		if known := aliases[name]; known != "" {
			return pflag.NormalizedName(known)
		}
		return pflag.NormalizedName(name)
	})
	s.SortFlags = false
	f.addTarget(s)
	f.addWorkload(s)
	f.addReport(s)
	f.addVLLM(s)
}

func (f *benchFlags) addTarget(s *pflag.FlagSet) {
	c := &f.o.Client
	s.StringVar(&c.URL, "url", "", "base URL of the server, without /v1 (default: http://HOST:PORT)")
	s.StringVar(&f.host, "host", "127.0.0.1", "host, if there is no --url")
	s.StringVar(&f.port, "port", "8000", "port, if there is no --url")
	s.StringVar(&c.Model, "model", "", "model (default: the first that the server lists)")
	s.StringVar(&c.API, "api", benchclient.Completions, "completions or chat")
	s.StringVar(&f.endpoint, "endpoint", "", "vLLM's flag for the API: /v1/completions or /v1/chat/completions")
	s.StringVar(&f.backend, "backend", "", "vLLM's other flag for the API: openai, vllm or openai-chat")
	f.manyVar(s, &f.headers, "header", "K=V … headers of each request")
	s.StringVar(&f.keyFile, "key-file", "", "file with the bearer token in its first line (default: OPENAI_API_KEY from the environment)")
	s.StringArrayVar(&f.engineURLs, "engine", nil, "NAME=URL or NAME:GPUS=URL of an engine behind the server, repeated: the run records its metrics; P, P2 or prefill-0 is a prefill engine, D a decode engine")
	s.BoolVar(&c.Insecure, "insecure", false, "accept any certificate")
	s.DurationVar(&c.Timeout, "timeout", 6*time.Hour, "longest time for a request")
	s.DurationVar(&c.Stall, "stall-timeout", 5*time.Minute, "longest time between two events after the first token")
}

func (f *benchFlags) addWorkload(s *pflag.FlagSet) {
	d, l := &f.o.Dataset, &f.o.Load
	s.StringVar(&d.Kind, "dataset", dataset.Random, strings.Join(dataset.Kinds(), ", "))
	s.StringVar(&d.File, "file", "", "file of the dataset")
	s.IntVar(&d.InputLen, "input-len", 1024, "prompt tokens (sonnet: 550)")
	s.IntVar(&d.OutputLen, "output-len", 128, "answer tokens (sonnet: 150; prompts, sharegpt, trace: what the file says)")
	s.IntVar(&d.PrefixLen, "prefix-len", 0, "tokens with which all prompts begin, in addition to --input-len (sonnet: 200, part of --input-len)")
	s.IntVar(&d.Prefixes, "prefixes", 1, "for random: number of different beginnings, each for the same number of prompts")
	s.StringVar(&f.ratio, "range-ratio", "0", `draw lengths evenly from ± this share, 0 to less than 1; 1: lengths that are all the same, as in older releases of vLLM; or {"input": A, "output": B}`)
	s.BoolVar(&d.InOrder, "in-order", false, "keep the order of the file; otherwise the seed shuffles its prompts")
	s.BoolVar(&f.o.NoReuse, "no-oversample", false, "send no more requests than the file has prompts")
	s.IntVar(&l.Count, "num-prompts", 0, "requests (default: 1000, or as many as fit into --duration)")
	s.DurationVar(&l.Duration, "duration", 0, "how long to send")
	s.StringVar(&f.rate, "rate", "inf", "requests per second, sent whether or not earlier ones are answered; inf: all at once")
	s.StringVar(&f.burstiness, "burstiness", "1", "shape of the gamma distribution of gaps: 1 is a Poisson process, less is burstier, inf constant")
	s.IntVar(&l.Concurrency, "concurrency", 0, "most requests in flight at once (default: no cap)")
	s.StringVar(&f.ramp.Strategy, "ramp", "", "linear or exponential: a rate that grows over the requests, instead of --rate")
	s.Float64Var(&f.ramp.From, "ramp-from", 0, "first rate of --ramp")
	s.Float64Var(&f.ramp.To, "ramp-to", 0, "last rate of --ramp")
	s.Uint64Var(&f.o.Seed, "seed", 0, "seed of prompts and times; if you use a seed again, prefix caches already have the prompts (default: drawn, and printed)")
	s.BoolVar(&f.o.Client.IgnoreEOS, "ignore-eos", false, "ask for answers of full length (default: true for random and trace)")
	s.StringVar(&f.temperature, "temperature", "", "temperature (default: the server's)")
	s.StringVar(&f.extra, "extra-body", "", "JSON object with additional members for each request")
	s.IntVar(&f.o.Warmups, "warmups", 0, "requests to send before the run, which do not count (default: 1 for the formats vllm and seed, as in vllm bench serve; else 0)")
	s.BoolVar(&f.o.Prime, "prime", false, "send each prompt once before the run, for one token, so that the run decodes cached prompts only")
	s.StringVar(&f.o.RequestIDPrefix, "request-id-prefix", "", "X-Request-Id is this and a number (default: bench-, eight random hex digits, -)")
}

func (f *benchFlags) addReport(s *pflag.FlagSet) {
	s.StringVar(&f.o.Label, "label", "", "name of the run in reports")
	s.StringVar(&f.out, "out", "", "directory to save the run in")
	s.StringSliceVar(&f.metrics, "metrics", []string{"ttft", "tpot", "itl"}, "sections of the block: ttft, tpot, itl, e2el, client_queue_time, e2el_including_client_queue")
	s.StringSliceVar(&f.percentiles, "percentiles", []string{"99"}, "percentiles of each section")
	f.manyVar(s, &f.goodput, "goodput", "limits in ms that a good request meets, as in ttft:200 tpot:50 e2el:5000")
	f.manyVar(s, &f.metadata, "metadata", "K=V … members of the result file")
	s.StringVar(&f.resultFile, "result-filename", "", "name of vLLM's result file in --out (default: made from rate, model and date)")
	s.BoolVar(&f.detailed, "save-detailed", false, "include the lists of all requests in vLLM's result file in --out, with the texts of answers")
	s.DurationVar(&f.o.MaxLate, "max-lateness", 100*time.Millisecond, "the run fails when the tool sends 1 % of its requests later than this; 0: never. Not applied to --rate inf without a cap")
	s.BoolVar(&f.noBar, "no-progress", false, "show no progress bar on a terminal")
}

// options reads the flags into a benchmark's options. args are further values of flags such as --goodput.
func (f *benchFlags) options(s *pflag.FlagSet, args []string) (bench.Options, error) {
	o := &f.o
	o.Tool = "xpyd " + readBuildInfo().Version
	settle := func(*pflag.FlagSet) error { return f.settle(args) }
	for _, read := range []func(*pflag.FlagSet) error{f.readVLLM, settle, f.readTarget, f.readBody, f.readLoad, f.readDataset, f.readReport} {
		if err := read(s); err != nil {
			return bench.Options{}, err
		}
	}
	f.testRun(s)
	return *o, o.Validate()
}

// checkUse finds what would fail only after the prompts were made: an URL that cannot be one, and a file that
// does not exist.
func checkUse(o bench.Options) error {
	if o.Dataset.File != "" {
		if _, err := os.Stat(o.Dataset.File); err != nil {
			return fmt.Errorf("--file: %w; give one that exists", err)
		}
	}
	_, err := benchclient.New(o.Client)
	return err
}

func (f *benchFlags) readGoodput() (err error) {
	f.o.Goodput, err = readBounds("goodput", f.goodput)
	return err
}

// readBounds reads the bounds of a flag, such as ttft:200,tpot:50.
func readBounds(flag string, pairs []string) (map[string]float64, error) {
	bounds := map[string]float64{}
	for _, pair := range pairs {
		for _, one := range strings.FieldsFunc(pair, func(r rune) bool { return r == ',' || r == ' ' }) {
			name, bound, _ := strings.Cut(one, ":")
			x, err := strconv.ParseFloat(bound, 64)
			if err != nil {
				return nil, fmt.Errorf("--%s %q: want METRIC:MILLISECONDS", flag, one)
			}
			bounds[name] = x
		}
	}
	return bounds, nil
}

func (f *benchFlags) readTarget(s *pflag.FlagSet) error {
	c := &f.o.Client
	if c.URL == "" {
		c.URL = "http://" + net.JoinHostPort(f.host, f.port)
	}
	switch f.backend {
	case "openai-chat":
		c.API = benchclient.Chat
	case "", "openai", "vllm":
	default:
		return fmt.Errorf("--backend %q: want openai, vllm or openai-chat", f.backend)
	}
	for _, text := range f.engineURLs {
		spec, err := engines.Parse(text)
		if err != nil {
			return fmt.Errorf("--engine %w", err)
		}
		f.engines = append(f.engines, spec)
	}
	if err := f.readEndpoint(); err != nil {
		return err
	}
	headers, err := pairs("header", f.headers)
	if err != nil {
		return err
	}
	c.Header = http.Header{}
	for _, h := range headers {
		c.Header.Add(h[0], h[1])
	}
	return f.readKey()
}

// readEndpoint takes the API from a path, and adds the part before /v1 to the URL.
func (f *benchFlags) readEndpoint() error {
	if f.endpoint == "" {
		return nil
	}
	c := &f.o.Client
	base, chat := strings.CutSuffix(f.endpoint, "/v1/chat/completions")
	if chat {
		c.API = benchclient.Chat
	} else if base, chat = strings.CutSuffix(f.endpoint, "/v1/completions"); !chat {
		return fmt.Errorf("--endpoint %q: want /v1/completions or /v1/chat/completions", f.endpoint)
	}
	c.URL = strings.TrimSuffix(strings.TrimSuffix(c.URL, "/"), "/v1") + base
	return nil
}

func (f *benchFlags) readKey() error {
	c := &f.o.Client
	if f.keyFile == "" {
		c.Key = os.Getenv("OPENAI_API_KEY")
		return nil
	}
	key, err := firstLine("--key-file", f.keyFile)
	c.Key = key
	return err
}

func (f *benchFlags) readBody(s *pflag.FlagSet) error {
	c := &f.o.Client
	if f.temperature != "" {
		t, err := strconv.ParseFloat(f.temperature, 64)
		if err != nil {
			return fmt.Errorf("--temperature %q: want a number", f.temperature)
		}
		c.Temperature = &t
	}
	if err := f.readSampling(s); err != nil {
		return err
	}
	if kind := f.o.Dataset.Kind; !s.Changed("ignore-eos") && !f.obeyEOS && (kind == dataset.Random || kind == dataset.Trace) {
		c.IgnoreEOS = true
	}
	if f.o.RequestIDPrefix == "" {
		var id [4]byte
		_, _ = rand.Read(id[:]) // never fails
		f.o.RequestIDPrefix = "bench-" + hex.EncodeToString(id[:]) + "-"
	}
	return nil
}

func (f *benchFlags) readLoad(s *pflag.FlagSet) (err error) {
	l := &f.o.Load
	if l.Rate, err = strconv.ParseFloat(f.rate, 64); err != nil {
		return fmt.Errorf("--rate %q: want a number or inf", f.rate)
	}
	if l.Burstiness, err = strconv.ParseFloat(f.burstiness, 64); err != nil {
		return fmt.Errorf("--burstiness %q: want a number or inf", f.burstiness)
	}
	if l.Ramp = f.ramp; l.Ramp != (benchload.Ramp{}) && s.Changed("rate") {
		return errors.New("--ramp has rates of its own: leave --rate out")
	}
	if l.Count == 0 && l.Duration == 0 && f.o.Dataset.Kind != dataset.Trace {
		l.Count = 1000
	}
	if math.IsInf(l.Rate, 1) && l.Ramp == (benchload.Ramp{}) && l.Concurrency == 0 && f.o.Dataset.Kind != dataset.Trace {
		f.o.MaxLate = 0 // all are due at once, and no program can send them all at once
	}
	if !s.Changed("seed") {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		f.o.Seed = uint64(binary.LittleEndian.Uint32(b[:]))
	}
	return nil
}

// readDataset sets the defaults of each dataset.
func (f *benchFlags) readDataset(s *pflag.FlagSet) error {
	d := &f.o.Dataset
	set := func(name string, value *int, sonnet, file int) {
		switch {
		case s.Changed(name) || f.keepLen || d.Kind == dataset.Random:
		case d.Kind == dataset.Sonnet:
			*value = sonnet
		default:
			*value = file
		}
	}
	set("input-len", &d.InputLen, 550, 0)
	set("output-len", &d.OutputLen, 150, 0)
	set("prefix-len", &d.PrefixLen, 200, 0)
	return f.readRatio()
}

func (f *benchFlags) readReport(*pflag.FlagSet) error {
	f.o.Metrics = f.metrics
	for _, text := range f.percentiles {
		p, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return fmt.Errorf("--percentiles %q: want numbers", text)
		}
		f.o.Percentiles = append(f.o.Percentiles, p)
	}
	metadata, err := pairs("metadata", f.metadata)
	if err != nil {
		return err
	}
	for _, one := range metadata {
		if f.o.Metadata == nil {
			f.o.Metadata = map[string]string{}
		}
		f.o.Metadata[one[0]] = one[1]
	}
	return f.readGoodput()
}
