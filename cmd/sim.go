package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"xpyd/cmd/config"
	"xpyd/netio"
	"xpyd/sim"
)

func newSimCmd() *cobra.Command {
	o := sim.Options{}
	var fast, caching, uncached, lora bool
	ranks := 1
	var fault, events, replay string
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run one simulated vLLM engine, for tests and trials without a GPU",
		Long: `sim runs one simulated vLLM engine, for tests and trials without a GPU. It writes one line of
JSON to standard error for each request. The answer depends on the prompt alone. It contains WRONG-KV
if the blocks belonged to another prompt, or were freed before the engine pulled them.

In addition to vLLM's routes it serves these, without a key:
  GET  /sim/ledger    the KV blocks that are pinned now ("pinned"), for whom, and how others were
                      freed: read, abort, reject, lease; "stale_reads" counts handles used twice or too late
  GET  /sim/requests  the requests that it got
  POST /sim/fault     sets a fault as in --fault, as a JSON string: '"status=503"'; '{}' ends it
  POST /sim/restart   makes the engine die and come back with a new engine id`,
		Example: "  xpyd sim --role prefill --listen 127.0.0.1:8100 --side-channel 127.0.0.1:5600\n" +
			"  xpyd sim --role decode --listen 127.0.0.1:8200 --fast",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fast {
				o = fastSim(o, cmd.Flags())
			}
			if o.Profile != nil {
				o = profiledSim(o, cmd.Flags())
			}
			o.NoPrefixCaching = uncached || !caching
			o.Log = cmd.ErrOrStderr()
			if ranks != 1 {
				return runRanks(cmd.Context(), o, ranks, fault, cmd.OutOrStdout())
			}
			return runSim(cmd.Context(), o, simExtras{fault, events, replay, lora}, cmd.OutOrStdout())
		},
	}
	addSimFlags(cmd.Flags(), &o)
	cmd.Flags().IntVar(&ranks, "ranks", 1, "data-parallel ranks behind the port. Each is an engine of its own, which a request names with X-data-parallel-rank, also below /sim/. Rank n has the n-th port from --side-channel on")
	cmd.Flags().BoolVar(&fast, "fast", false, "prefill, transfer and tokens take no time, unless their flags are given")
	cmd.Flags().BoolVar(&caching, "prefix-caching", true, "reuse the first blocks of a prompt from the cache if they have been computed before")
	cmd.Flags().BoolVar(&uncached, "no-prefix-caching", false, "the same as --prefix-caching=false")
	cmd.Flags().StringVar(&events, "kv-events", "", "host:port at which it publishes what it stores in its KV cache and removes, as vLLM does with --kv-events-config")
	cmd.Flags().StringVar(&replay, "kv-replay", "", "host:port at which it says those events again")
	cmd.Flags().BoolVar(&lora, "enable-lora", false, "serve /v1/load_lora_adapter and /v1/unload_lora_adapter, as with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True")
	cmd.Flags().StringVar(&fault, "fault", "", `misbehave, as in "die@17:rst", "status=503", "slow-accept=1s", "random=0.1,42" (a tenth of the requests, by seed)`)
	return cmd
}

func addSimFlags(f *pflag.FlagSet, o *sim.Options) {
	f.StringVar(&o.Name, "name", "", "name in log lines and fault markers (default the role)")
	f.StringVar((*string)(&o.Role), "role", "both", "prefill, decode, encode, or both: a plain engine without a KV connector")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8000", "host:port of the HTTP side")
	f.StringVar(&o.SideChannel, "side-channel", "127.0.0.1:0", "host:port of the KV side channel")
	f.StringVar((*string)(&o.Connector), "connector", string(sim.ConnectorNixl), fmt.Sprintf("how KV travels: %v", sim.Connectors()))
	f.StringVar(&o.Storage, "storage", "", "folder for the KV of connectors shared-storage and lmcache, the same for all engines")
	f.StringVar(&o.Encodings, "encodings", "", "folder for the encodings of images and audio, the same for all engines; without a folder, engines fetch them from encode engines")
	f.StringVar(&o.Bootstrap, "bootstrap", "127.0.0.1:0", "host:port of the bootstrap server of connector mooncake")
	f.StringVar(&o.Model, "model", "sim", "served model name")
	f.StringVar(&o.Weights, "weights", "", "name of the weights; KV of other weights is wrong")
	f.StringVar(&o.Version, "vllm-version", "0.32.0", "version that /version answers; below 0.32 a rejected request leaves the blocks pinned")
	f.IntVar(&o.BlockSize, "block-size", 16, "tokens per KV block")
	f.IntVar(&o.Parallel.TP, "tp", 1, "tensor-parallel size, which the handle tells. A decode engine refuses the KV of a prefill engine as vLLM does: if neither size is a multiple of the other, or if the prefill engine's is the larger one and above --kv-heads")
	f.IntVar(&o.Parallel.KVHeads, "kv-heads", 8, "KV heads of the model")
	f.IntVar(&o.NumBlocks, "num-blocks", 8192, "KV blocks")
	f.IntVar(&o.MaxSeqs, "max-num-seqs", 64, "sequences that run at once")
	f.IntVar(&o.MaxModelLen, "max-model-len", 0, "tokens of prompt and answer together (default 32768, or what the blocks hold)")
	f.Float64Var(&o.PrefillTokensPerSecond, "prefill-speed", 20000, "prompt tokens computed per second, one prompt after the other")
	f.IntVar(&o.MaxBatchedTokens, "max-num-batched-tokens", 2048, "tokens of a prompt computed at once, while running answers wait; with -1, requests do not slow each other down")
	f.DurationVar(&o.TransferPerBlock, "transfer-per-block", 50*time.Microsecond, "time to pull one KV block")
	f.DurationVar(&o.TokenLatency, "token-latency", 15*time.Millisecond, "time between two tokens")
	f.Func("profile", "use times as recorded on GPUs instead of the speeds above: "+strings.Join(sim.Profiles(), ", "), func(name string) (err error) {
		o.Profile, err = sim.ProfileNamed(name)
		return err
	})
	f.DurationVar(&o.AbortWindow, "abort-window", 3*time.Millisecond, "last part of a prefill during which an abort strands its blocks")
	f.DurationVar(&o.Lease, "lease", 30*time.Second, "how long a finished prefill's blocks wait for a reader")
	f.StringVar(&o.ToolCallParser, "tool-call-parser", "", `with "hermes", the engine answers with tool calls if the request asks for them; without it, the engine refuses such requests`)
	f.BoolVar(&o.Bidirectional, "bidirectional-kv", false, "make a decode engine keep the blocks of its answers for 480s, and describe them in the answers")
	f.BoolVar(&o.Encodes, "encodes", false, "make an engine that does not have the role encode keep what it encodes for others, and say so in its answers")
	f.StringVar(&o.LoadFailure, "load-failure", "fail", "what to do after a failed KV pull: fail or recompute")
	f.DurationVar(&o.HandshakeTimeout, "handshake-timeout", 5*time.Second, "how long to try to reach a new prefill engine")
	f.DurationVar(&o.KeepAlive, "keep-alive", 5*time.Second, "how long an HTTP connection may be idle before it closes")
	f.StringVar(&o.APIKey, "api-key", "", "key that /v1 requests must carry as a bearer token")
}

// fastSim makes prefill, transfer and tokens take no time, except where their flags were given.
func fastSim(o sim.Options, f *pflag.FlagSet) sim.Options {
	if !f.Changed("prefill-speed") {
		o.PrefillTokensPerSecond = math.Inf(1)
	}
	if !f.Changed("transfer-per-block") {
		o.TransferPerBlock = -1
	}
	if !f.Changed("token-latency") {
		o.TokenLatency = -1
	}
	return o
}

// profiledSim leaves what the profile says to it, except where the flags were given.
func profiledSim(o sim.Options, f *pflag.FlagSet) sim.Options {
	if !f.Changed("max-num-batched-tokens") {
		o.MaxBatchedTokens = 0
	}
	if !f.Changed("max-num-seqs") {
		o.MaxSeqs = 0
	}
	return o
}

// simExtras are flags of an engine that are no options of its start.
type simExtras struct {
	fault, events, replay string
	lora                  bool
}

// runSim serves until ctx ends.
func runSim(ctx context.Context, o sim.Options, x simExtras, out io.Writer) (err error) {
	if err := o.Validate(); err != nil {
		return config.UsageError{Err: err}
	}
	var f sim.Fault
	if x.fault != "" {
		if f, err = sim.ParseFault(x.fault); err != nil {
			return config.UsageError{Err: err}
		}
	}
	e, err := sim.Start(o)
	if err != nil {
		return taken(err)
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if err := e.SetFault(f); err != nil {
		return err
	}
	if x.lora {
		e.LoadAdapters()
	}
	if x.events != "" {
		if err := e.Announce(x.events, x.replay); err != nil {
			return taken(err)
		}
	}
	line := fmt.Sprintf("sim %s ready: %s, model %s", e.Name(), e.URL(), o.Model)
	if side := e.SideChannelAddr(); side != "" {
		line += ", side channel " + side
	}
	if port := e.BootstrapPort(); port > 0 {
		line += fmt.Sprintf(", bootstrap port %d", port)
	}
	if events, replay := e.KVEvents(); events != "" {
		line += ", KV events " + events
		if replay != "" {
			line += ", their replay " + replay
		}
	}
	if _, err := fmt.Fprintln(out, line); err != nil {
		return fmt.Errorf("tell that sim %s is ready: %w", e.Name(), err)
	}
	return awaitSim(ctx, e)
}

// taken says of a port that another process has what serve says.
func taken(err error) error {
	var op *net.OpError
	if errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &op) {
		return fmt.Errorf("listen: %s %w", op.Addr, netio.ErrInUse)
	}
	return err
}

// awaitSim waits until ctx ends, or the engine dies and is not being restarted.
func awaitSim(ctx context.Context, e *sim.Engine) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.Died():
		}
		select {
		case <-e.Died(): // Died waits for a restart
			return fmt.Errorf("sim %s died: EngineCore encountered an issue", e.Name())
		default:
		}
	}
}
