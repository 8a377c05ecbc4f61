package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"xpyd/tools/overlay"
)

// wrong is one fault in xpyd that a check of real engines must find.
type wrong struct {
	name     string
	in       string // the declaration that has from once, as overlay.Index finds it; to takes its place
	from, to string
	check    string // the name of the check that must find it
	kv       string // the connector whose part of xpyd is changed; "" is the first one
}

// wrongs returns the faults that only an engine's own counters and answers can show for sure.
func wrongs() []wrong {
	return []wrong{{
		name: "handle sent twice", in: "(*decodeLeg).attempt", check: "counters",
		from: "err := d.X.Do(c.s.engines.Client(b), c.request(c.dSegs, d.Attempt), deadline, again)",
		to: "if first := d.X.Do(c.s.engines.Client(b), c.request(c.dSegs, d.Attempt), deadline, false); first == nil && !handle.None() {\n" +
			"\t\t_, _ = d.X.ReadAll(nil, 1<<20)\n\t}\n\td.X.Drop()\n\td.X.Reset()\n\t" +
			"err := d.X.Do(c.s.engines.Client(b), c.request(c.dSegs, d.Attempt), deadline, again)",
	}, {
		name: "kv_transfer_params dropped on D's leg", in: "nixl.AppendDecode", check: "counters",
		from: "return d.reuse.appendHandle(dst, r, h, kvLead, handleEnd)",
		to:   "return r.AppendPlain(dst)",
	}, {
		name: "kv_transfer_params dropped on D's leg of push", in: "nixlPush.AppendDecode", check: "counters", kv: "nixl-push",
		from: "return d.reuse.appendHandle(dst, r, h, pushLead(r, leg), transferID(leg))",
		to:   "return r.AppendPlain(dst)",
	}, {
		name: "kv_transfer_params dropped on D's leg of Multi", in: "nixl.AppendDecode", check: "counters", kv: "multi",
		from: "return d.reuse.appendHandle(dst, r, h, kvLead, handleEnd)",
		to:   "return r.AppendPlain(dst)",
	}, {
		name: "kv_transfer_params dropped on D's leg of Mooncake", in: "mooncake.AppendDecode", check: "counters", kv: "mooncake",
		from: "return r.appendWith(dst, m.Pair(leg).Raw)",
		to:   "return r.AppendPlain(dst)",
	}, {
		name: "both legs at once, so that nothing is stored yet", in: "shared.Concurrent", check: "counters", kv: "shared-storage",
		from: "return false",
		to:   "return true",
	}, {
		name: "both legs at once, so that LMCache has nothing yet", in: "shared.Concurrent", check: "counters", kv: "lmcache",
		from: "return false",
		to:   "return true",
	}, {
		name: "max_tokens left as it was on P's leg", in: "Reuse.oneToken", check: "counters",
		from: "r.form().oneToken",
		to:   "r.form().oneToken[:2]",
	}, {
		name: "no release", in: "(*completion).abandon", check: "leave",
		from: "c.handoff.Release(a)",
		to:   "_ = a\n\tc.handoff.End(handoff.Burnt)",
	}, {
		name: "a stream cut and ended cleanly", in: "(*decodeLeg).streamBroke", check: "die",
		from: "_ = out.write(c.failure.AppendEvent(nil, c.api, d.relay.events), time.Now())",
		to:   "_ = out.write([]byte(\"data: [DONE]\\n\\n\"), time.Now())\n\t\td.endAnswer(failed.Outcome, failed.Code)\n\t\treturn nil",
	}, {
		name: "an encode leg with options that the client did not give", in: "(*Request).AppendEncode", check: "encode",
		from: "dst = dst.add([]byte(`\"messages\":[{\"role\":\"user\",\"content\":[`))",
		to:   "dst = dst.add([]byte(`\"mm_processor_kwargs\":{\"do_center_crop\":false},\"messages\":[{\"role\":\"user\",\"content\":[`))",
	}, {
		name: "every leg to rank 0", in: "rankField", check: "ranks",
		from: "strconv.Itoa(b.Rank)",
		to:   "strconv.Itoa(0*b.Rank)",
	}, {
		name: "figures of the whole server for each rank", in: "parsePage", check: "ranks",
		from: "if rank == router.NoRank || !ofOther(line, \"engine\", rank) {",
		to:   "if true {",
	}, {
		name: "a copy of a block that two prompts computed not counted", in: "(*index).stored", check: "events",
		from: "case b.copies < math.MaxUint8:",
		to:   "case b.copies < min(1, math.MaxUint8):",
	}, {
		name: "evicted blocks kept", in: "(*index).removed", check: "events",
		from: "delete(x.blocks, hash)",
		to:   "x.blocks[hash] = b",
	}, {
		name: "a pair of two connectors let in", in: "(*Config).checkPartners", check: "mixed",
		from: "return o.path != m.path && o.connector == m.connector",
		to:   "return o.path != m.path",
	}, {
		name: "kv_transfer_params dropped on D's leg of one of two connectors", in: "nixlPush.AppendDecode", check: "mixed",
		from: "return d.reuse.appendHandle(dst, r, h, pushLead(r, leg), transferID(leg))",
		to:   "return r.AppendPlain(dst)",
	}}
}

// picked reports whether the wrong is judged. Those of a check whose engines start for minutes are named, like the check.
func (w wrong) picked(run *regexp.Regexp) bool {
	slow := slices.ContainsFunc(checks(), func(c check) bool { return c.name == w.check && c.named })
	return run.MatchString(w.name) && (!slow || run.String() != "")
}

// connector returns the one whose engines the wrong is judged with.
func (w wrong) connector() string {
	if w.kv == "" {
		return connectors()[0].name
	}
	return w.kv
}

// leaseTime is how long blocks that a wrong has stranded may stay, and a little more. The next one
// must begin without any.
const leaseTime = 45 * time.Second

// judgeWrongs builds xpyd with one fault after the other and runs its check. It returns how many
// were not found. make e2e shows that the same checks hold without a fault.
func judgeWrongs(ctx context.Context, f *fleet, pick *regexp.Regexp) (survived int, err error) {
	dir, err := os.MkdirTemp("", "e2e-wrongs")
	if err != nil {
		return 0, fmt.Errorf("make a place for builds: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "\nWRONG\tCHECK\tVERDICT\tCASES\tFAILURES\tLEASES RUN OUT\tSECONDS")
	tried := 0
	for _, w := range wrongs() {
		if !w.picked(pick) || w.connector() != f.opts.kv.name {
			continue
		}
		tried++
		r, expired, err := w.judge(ctx, f, filepath.Join(dir, fmt.Sprint(tried)))
		if err != nil {
			return 0, fmt.Errorf("wrong %q: %w", w.name, err)
		}
		verdict := "found"
		if !r.found() && (r.err == nil || expired == 0) {
			verdict = "survived"
			survived++
		}
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%v\t%.1f\n", w.name, w.check, verdict, r.cases, r.failures, expired, r.took.Seconds())
	}
	if tried == 0 {
		return 0, fmt.Errorf("no wrong matches %q", pick)
	}
	return survived, tw.Flush()
}

// found reports a case that does not hold, and not just a check that could not be carried out. Such
// a check finds a wrong only if leases ran out meanwhile, because prefill engines are full of
// blocks that are not freed.
func (r row) found() bool {
	if r.err != nil {
		return r.failures > 1
	}
	return r.failures > 0
}

func (w wrong) judge(ctx context.Context, f *fleet, dir string) (r row, expired float64, err error) {
	program, err := w.build(ctx, dir)
	if err != nil {
		return row{}, 0, err
	}
	f.opts.xpyd = program
	for _, c := range checks() {
		if c.name != w.check {
			continue
		}
		fmt.Printf("\nwrong: %s\n", w.name)
		pair, err := f.all(ctx, prefillEngine(1), decodeEngine(1)) // every check uses them
		if err != nil {
			return row{}, 0, err
		}
		before, err := pair[0].expired(ctx)
		if err != nil {
			return row{}, 0, err
		}
		r := c.judge(ctx, f)
		if ctx.Err() != nil {
			return r, 0, ctx.Err()
		}
		if err := f.awaitFree(ctx); err != nil {
			return r, 0, err
		}
		after, _ := pair[0].expired(ctx) // a killed engine counts nothing
		return r, max(0, after-before), nil
	}
	return row{}, 0, fmt.Errorf("there is no check %q", w.check)
}

// build compiles xpyd with the fault.
func (w wrong) build(ctx context.Context, dir string) (program string, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	index, err := overlay.Read(root)
	if err != nil {
		return "", err
	}
	file, changed, err := index.Change(w.in, w.from, w.to)
	if err != nil {
		return "", err
	}
	file, err = overlay.Write(dir, map[string][]byte{filepath.Join(root, file): changed})
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "xpyd")
	if text, err := exec.CommandContext(ctx, "go", "build", "-overlay", file, "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, text)
	}
	return program, nil
}

// awaitFree waits until no running engine holds a block.
func (f *fleet) awaitFree(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.engines {
		if e.role == "store" || !e.running(ctx) {
			continue
		}
		err := poll(ctx, leaseTime, func() bool {
			used, err := e.metric(ctx, "vllm:kv_cache_usage_perc")
			return err == nil && used == 0
		})
		if err != nil {
			return fmt.Errorf("%s still holds blocks after %v", e.name, leaseTime)
		}
	}
	return nil
}
