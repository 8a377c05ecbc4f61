"""rig.py: runs a plan of experiments with xpyd and real vLLM engines on the GPUs of this machine.

  rig.py run PLAN.json --out DIR [--xpyd PATH] [--limit SECONDS] [--first-gpu N] [--engines FILE] [--round N]
                        [--dry-run | --profile NAME]
  rig.py engines PLAN.json --out DIR [--xpyd PATH] [--limit SECONDS] [--first-gpu N] [--dry-run | --profile NAME]

engines starts the engines of a plan, writes DIR/engines.json and keeps them until it gets TERM or the limit is over. run
--engines takes those in place of its own, so several plans, also of another xpyd, can follow each other on them.

A plan starts its engines once, then takes its steps one after the other. After each step DIR has
summary.json and runs.tar.gz with all results so far. No step begins that cannot end within the
limit, and every process is ended, whatever happens. --dry-run takes the same steps with simulated
engines in a few seconds; its figures mean nothing. --profile takes them in full with simulated engines
that have the times of a recording, so that the results can be compared with those of the GPUs.
"""
import argparse
import contextlib
import datetime
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import engines
import figures
import legs
import record
from render import load_of
from watch import Watch

KINDS = ("fill", "serve", "vllm_bench", "compare", "alone", "record")
LEAD = 4  # requests of each bench that do not count
VLLM_IMPORTS = 30  # seconds before vllm bench serve sends its first request
RESERVE = 20  # seconds at the end for logs and the end of the processes


def say(text):
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", flush=True)


class Rig:
    def __init__(self, args):
        with open(args.plan) as f:
            self.plan = json.load(f)
        self.args, self.begin = args, time.time()
        self.runs = os.path.join(args.out, "work", "runs")
        self.logs = os.path.join(args.out, "work", "logs")
        for d in (self.runs, self.logs):
            os.makedirs(d, exist_ok=True)
        self.defaults = {"model": self.plan.get("model", "qwen3-8b"), "length": self.plan.get("length", 16384)}
        self.fleet = engines.Fleet(os.path.abspath(args.xpyd), self.logs, self.defaults, args.dry_run, args.profile)
        self.result = {"plan": os.path.basename(args.plan), "about": self.plan["about"], "dry_run": args.dry_run, "profile": args.profile,
                       "first_gpu": args.first_gpu, "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                       "steps": [], "not_run": []}

    def left(self):
        return self.args.limit - RESERVE - (time.time() - self.begin)

    def engine_specs(self):
        gpus, first, specs = self.plan["gpus"], self.args.first_gpu, {}
        for topology in self.plan.get("topologies", []):
            specs |= engines.expand(topology, gpus)
        specs |= self.plan.get("engines", {})
        return {n: self.plan.get("defaults", {}) | s | {"gpus": [first + g % gpus for g in s["gpus"]]} for n, s in specs.items()}

    def run(self):
        specs = self.engine_specs()
        self.result |= {"engines": specs, "contenders": self.plan["contenders"], "versions": self.versions() | router_version(self.plan["contenders"])}
        if self.args.engines:
            self.fleet.attach(self.args.engines, specs)
            self.result |= {"up_after_s": {}, "lost": {}}
        else:
            self.start(specs)
        for i, step in enumerate(self.plan["steps"]):
            self.take(i, step)

    def start(self, specs):
        if not self.fleet.simulated and (full := engines.crowded(specs, self.defaults["model"], engines.gpu_memory())):
            raise SystemExit(f"{self.args.plan}: {'; '.join(full)}")
        say(f"starting {', '.join(specs)}")
        self.fleet.start(specs)
        self.result["up_after_s"], self.result["lost"] = self.fleet.wait(min(self.plan.get("start_limit", 300), self.left()))
        say(f"up: {self.result['up_after_s']}")
        for name, log in self.result["lost"].items():
            say(f"LOST {name}: {log}")

    def keep_engines(self):
        """Starts the engines for other rigs, and waits until it is ended."""
        specs = self.engine_specs()
        self.start(specs)
        self.fleet.describe(os.path.join(self.args.out, "engines.json"), specs)
        while self.left() > 0:
            time.sleep(0.2)

    def take(self, index, step):
        name = next(k for k in KINDS if k in step)
        for i in range(step.get("repeat", 1)):
            need = self.seconds(step)
            if need > self.left():
                say(f"no time for {json.dumps(step)}: {need:.0f} s of {self.left():.0f} s")
                self.result["not_run"].append(step)
                return
            # Contenders begin in turns, so that none is always the first after a pause.
            at = i + self.args.round
            turn = dict(step, repeat=at, kind=name, seed=step.get("seed", 7000 + 100 * index) + 10 * (at - 1))
            try:
                getattr(self, name)(turn)
            except Exception as e:  # one step that fails must not cost the others
                self.fail(name, step, e)
            self.save()

    def fail(self, kind, step, error):
        say(f"FAILED {json.dumps(step)}: {error}")
        self.result["steps"].append({"kind": kind, "step": step, "error": str(error)[:2000]})

    def seconds(self, step):
        """How long the step takes at least, so that none begins which the limit would cut."""
        if self.args.dry_run:
            return 1
        if names := step.get("serve"):
            return len(names) * (step["seconds"] + 12)
        if names := step.get("vllm_bench"):
            return len(names) * (step["seconds"] + VLLM_IMPORTS + 5)
        return step.get("takes", 10)

    # The kinds of steps.

    def serve(self, step):
        self.each(step, step["serve"], self.load)

    def vllm_bench(self, step):
        self.each(step, step["vllm_bench"], self.load_by_vllm)

    def each(self, step, names, do):
        at = (step["repeat"] - 1) % len(names)
        for name in names[at:] + names[:at]:
            try:
                do(name, step)
            except Exception as e:  # one contender that fails must not cost the others
                self.fail(step["kind"], dict(step, contender=name), e)
            self.save()

    def load(self, name, step):
        label = f"{step['seed']}-{name}@{load_of(step)}x{step['workload']}"
        workload = self.plan["workloads"][step["workload"]]
        streams = workload if isinstance(workload, list) else []
        with self.measured(name, label, step) as (url, out):
            idle = self.decided(name)
            if "turns" in workload:
                loads = [self.chats(url, label, workload, step)]
            elif "phases" in workload:
                loads = [self.trace(url, label, workload["phases"], step)]
            else:
                loads = [self.bench(url, label, i, s, step) for i, s in enumerate(streams)]
            if "trouble" in step:
                self.await_load(name, idle + len(streams) * step.get("lead", LEAD))
                out["trouble"] = self.trouble(step["trouble"])
            codes = [self.finish(b, step) for b in loads]
        out["streams"] = [self.totals(label, i, s, c) for i, (s, c) in enumerate(zip(streams, codes))]
        out |= self.whole(label, workload)
        say(f"{label}: {brief(out)}")

    def whole(self, label, workload):
        """The figures over all streams of a load; of conversations those of the turns after the first, which stand apart; of
        shapes that follow each other those of each, too."""
        runs, seconds, began = [], 0, ""
        for path in glob.glob(os.path.join(self.runs, f"{label}.*", "*.run.json")):
            with open(path) as f:
                run = json.load(f)
            runs += run["records"]
            began = min(began or run["started"], run["started"])
            seconds = max(seconds, run["duration_us"] / 1e6)
        if "turns" in workload:
            later, first = ([r for r in runs if bool(r["turn"]) == later] for later in (True, False))
            tokens = sum(r.get("tokens", 0) for r in runs)
            out = {"began": began, "all": figures.pooled(later, seconds or 1), "first": figures.pooled(first, seconds or 1)}
            out["all"]["tokens_per_second"] = round(tokens / (seconds or 1), 3)
            out["all"]["cached"] = round(sum(r.get("cached", 0) for r in later) / max(1, sum(r["prompt"] for r in later)), 3)
            return out
        records = [figures.of_bench(r) for r in runs]
        out = {"began": began, "all": figures.pooled(records, seconds or 1)}
        if "phases" in workload:
            out["phases"] = []
            for begin, end in spans(workload["phases"]):
                out["phases"].append(figures.pooled([r for r in records if begin <= r.get("at", -1) < end], end - begin))
        return out

    def chats(self, url, label, load, step):
        """Conversations, by a client in a process of its own."""
        if self.args.dry_run:
            load = load | {"conversations": 2, "turns": 2, "shared": 100, "own": 100, "ask": 20, "answer": 5, "every": 0.1, "think": [0, 0.1]}
        os.makedirs(os.path.join(self.runs, label + ".0"))
        what = os.path.join(self.logs, label + ".chats.json")
        with open(what, "w") as f:
            json.dump({"url": url, "model": self.defaults["model"], "load": load, "salt": label, "seed": step["seed"]}, f)
        argv = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "chats.py"), what, os.path.join(self.runs, label + ".0", "chats.run.json")]
        return engines.Process("chats", argv, os.path.join(self.logs, "bench.log"))

    def trace(self, url, label, phases, step):
        """Shapes that follow each other, as a trace: the requests of each come at its rate for its seconds."""
        rnd, path, dry = random.Random(step["seed"]), os.path.join(self.logs, f"{step['seed']}.trace.jsonl"), self.args.dry_run
        with open(path, "w") as f:
            for at, phase in arrivals(rnd, [p | {"seconds": 1, "input": 50, "output": 3} for p in phases] if dry else phases):
                f.write(json.dumps({"timestamp": round(at * 1e3), "input_length": phase["input"], "output_length": phase["output"]}) + "\n")
        return engines.Process("bench", self.bench_argv(url, label, 0, step) + ["--dataset", "trace", "--file", path], os.path.join(self.logs, "bench.log"))

    def decided(self, name):
        """How many requests the contender's proxy has sent on their way."""
        return sum(v for k, v in proxy_counters(self.fleet.ask_proxy(name, "/metrics")).items() if k.startswith("xpyd_decisions_total"))

    def await_load(self, name, warmed):
        """Waits for the first request after the warm-ups, because the benches make their prompts before, for seconds."""
        end = time.time() + 30
        while self.decided(name) <= warmed:
            if time.time() > end:
                raise TimeoutError(f"no load came to {name} within 30 s")
            time.sleep(0.1)

    def trouble(self, what):
        """Stops or kills an engine some seconds into the load. One that is stopped goes on after some seconds."""
        engine, scale = self.fleet.engines[what["engine"]], 0.1 if self.args.dry_run else 1
        time.sleep(what["after"] * scale)
        engine.signal(getattr(signal, "SIG" + what["signal"]))
        if what["signal"] == "STOP":
            time.sleep(what["seconds"] * scale)
            engine.signal(signal.SIGCONT)
        return what

    @contextlib.contextmanager
    def measured(self, name, label, step):
        """The contender's URL and the entry for its result, which gets all that is watched meanwhile."""
        contender = self.plan["contenders"][name]
        url = self.fleet.serve(name, contender)
        watched, log = engines.used(contender), os.path.join(self.logs, f"proxy-{name}.log")
        told = os.path.getsize(log) if os.path.exists(log) else 0
        out = {k: step.get(k) for k in ("kind", "workload", "rate", "seed")} | {k: step[k] for k in ("concurrency",) if k in step} | {"contender": name, "at": round(time.time() - self.begin, 1)}
        with contextlib.ExitStack() as stack:
            spies = [stack.enter_context(self.spy(e, label, step)) for e in step.get("spy", []) if e in watched]
            watch = stack.enter_context(Watch(self.fleet, watched))
            before = proxy_counters(self.fleet.ask_proxy(name, "/metrics"))
            yield url, out
            after = self.fleet.ask_proxy(name, "/metrics")
        out["engines"], out["proxy"] = watch.summary(), grown(before, proxy_counters(after))
        if any(spies):
            out["spies"] = [s for s in spies if s]
        with open(os.path.join(self.logs, f"metrics-{label}.txt"), "w") as f:
            f.write(after)
        if contender.get("mode") == "auto":
            out["advice"] = json.loads(self.fleet.ask_proxy(name, "/advice") or "null")
        if contender.get("engines"):
            out["plans"] = plans(log, told)
        self.result["steps"].append(out)

    def load_by_vllm(self, name, step):
        """vllm bench serve with its random prompts, which are the same for all contenders, as is its tokenizer."""
        label, w = f"{step['seed']}-{name}@{step['rate']}xvllm", step
        saved = os.path.join(self.runs, label + ".vllm.json")
        with self.measured(name, label, step) as (url, out):
            out["stream"] = {k: w[k] for k in ("input", "output")}
            if self.args.dry_run:
                argv = [self.fleet.xpyd, "bench", "serve", "--url", url, "--input-len", "200", "--output-len", "5", "--num-prompts", "3", "--no-progress"]
            else:
                models = os.environ["MODELS"]
                argv = [os.environ["PY"], "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai", "--base-url", url,
                        "--model", self.defaults["model"], "--tokenizer", f"{models}/blank", "--dataset-name", "random",
                        "--random-input-len", str(w["input"]), "--random-output-len", str(w["output"]), "--ignore-eos",
                        "--request-rate", str(w["rate"]), "--num-prompts", str(w["rate"] * w["seconds"]), "--seed", str(w["seed"]),
                        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99", "--disable-tqdm",
                        "--extra-body", json.dumps({"cache_salt": label}),  # see bench
                        "--save-result", "--result-filename", saved]
            out["exit"] = self.finish(engines.Process("bench", argv, os.path.join(self.logs, "vllm-bench.log")), step)
        if os.path.exists(saved):
            with open(saved) as f:
                got = json.load(f)
            out["totals"] = {k: round(v, 3) if isinstance(v, float) else v for k, v in got.items() if isinstance(v, (int, float))}
        say(f"vllm bench, {label}: exit {out['exit']}, {short(out.get('totals', {}))}; {told(out['engines'])}")

    def bench_argv(self, url, label, i, step):
        return [self.fleet.xpyd, "bench", "serve", "--url", url, "--model", self.defaults["model"], "--warmups", str(step.get("lead", LEAD)),
                "--seed", str(step["seed"] + i), "--temperature", "0", "--label", label, "--out", os.path.join(self.runs, f"{label}.{i}"), "--no-progress",
                "--format", "table", "--max-lateness", "0",
                # Contenders get the same prompts at the same times, and must not find each other's in a cache.
                "--extra-body", json.dumps({"cache_salt": label})]

    def bench(self, url, label, i, stream, step):
        argv = self.bench_argv(url, label, i, step) + ["--input-len", str(stream["input"]), "--output-len", str(stream["output"]),
                                                       *self.offered(step, stream.get("share", 1))]
        if stream.get("spread"):
            argv += ["--range-ratio", str(stream["spread"])]
        return engines.Process("bench", argv, os.path.join(self.logs, "bench.log"))

    def offered(self, step, share):
        """The load of one stream: a rate for some seconds, or a number of prompts of which so many are open at once."""
        if "concurrency" in step:
            prompts = 2 if self.args.dry_run else round(step["prompts"] * share)
            return ["--concurrency", str(max(1, round(step["concurrency"] * share))), "--num-prompts", str(prompts)]
        rate, seconds = step["rate"] * share, step["seconds"]
        if self.args.dry_run:
            seconds, rate = 1, max(rate, 4)
        return ["--rate", str(rate), "--num-prompts", str(max(2, round(rate * seconds)))]

    def finish(self, process, step):
        try:
            return process.child.wait(max(10, min(self.left(), step["seconds"] * 3 + 30)))
        except subprocess.TimeoutExpired:
            process.signal(signal.SIGINT)  # the run is saved as far as it came
            time.sleep(2)
            engines.end([process], 1)
            return "late"

    def totals(self, label, i, stream, code):
        saved = glob.glob(os.path.join(self.runs, f"{label}.{i}", "*.run.json"))
        if not saved:
            return {"stream": stream, "exit": code, "error": "no saved run, see bench.log"}
        with open(saved[0]) as f:
            run = json.load(f)
        t = run["totals"]
        t["ms"] = {k: {q: round(v[q], 3) for q in ("mean", "median", "p90", "p99", "max")} for k, v in t["ms"].items()}
        return {"stream": stream, "exit": code, "seconds": run["duration_us"] / 1e6, "totals": t}

    def fill(self, step):
        """Uses each block of the engines' caches once: afterwards free blocks lie scattered."""
        for name in step["fill"]:
            url = self.fleet.serve(name, self.plan["contenders"][name])
            n = 3 if self.args.dry_run else step["prompts"]
            argv = [self.fleet.xpyd, "bench", "serve", "--url", url, "--model", self.defaults["model"], "--input-len", str(step["input"]),
                    "--range-ratio", "0.5", "--output-len", "16", "--concurrency", "8", "--num-prompts", str(n), "--no-progress",
                    "--seed", str(31 + len(self.result["steps"]))]
            begin = time.time()
            code = engines.Process("fill", argv, os.path.join(self.logs, "bench.log")).child.wait(max(10, self.left()))
            self.result["steps"].append({"kind": "fill", "contender": name, "exit": code, "seconds": round(time.time() - begin, 1)})
            say(f"fill {name}: exit {code}, {time.time() - begin:.1f} s")

    def compare(self, step):
        name = step["compare"]
        c = self.plan["contenders"][name]
        url = self.fleet.serve(name, c)
        lengths = [200] if self.args.dry_run else step["lengths"]
        rows = legs.compare(self.fleet, dict(step, url=url, lengths=lengths, prefill=c["prefill"][0], decode=c["decode"][0]), self.defaults["model"])
        self.result["steps"].append({"kind": "compare", "contender": name, "rows": rows})
        for r in rows:
            say(f"{name}, {r['length']} tokens: P {r['prefill_ms']}, by hand {r['by_hand_ms']}, proxy {r['proxy_ms']}")

    def alone(self, step):
        lengths = [200] if self.args.dry_run else step["lengths"]
        rows = legs.alone(self.fleet, dict(step, engine=step["alone"], lengths=lengths), self.defaults["model"])
        self.result["steps"].append({"kind": "alone", "engine": step["alone"], "rows": rows})
        say(f"{step['alone']} alone: " + ", ".join(f"{r['length']}: {r['ttft_ms']['p50']}" for r in rows))

    def record(self, step):
        do = {"steps": record.steps, "prefills": record.prefills, "transfers": record.transfers, "exact": record.exact, "leave": record.leave}
        what = dict(step, **(step.get("dry", {}) if self.args.dry_run else {}))
        if name := step.get("contender"):
            what["url"] = self.fleet.serve(name, self.plan["contenders"][name])
        begin = time.time()
        rows = do[step["record"]](self.fleet, what, self.defaults["model"])
        self.result["steps"].append({"kind": "record", "step": step, "rows": rows})
        for r in rows if isinstance(rows, list) else [rows]:
            say(f"{step['record']}: {json.dumps(r)}")
        say(f"{step['record']}: {time.time() - begin:.1f} s")

    # What is asked beside the load.

    @contextlib.contextmanager
    def spy(self, engine, label, step):
        """Where the engine's API server spends its time, by py-spy where it is installed."""
        tool = shutil.which("py-spy")
        if not tool or self.args.dry_run:
            yield None
            return
        into = os.path.join(self.logs, f"spy-{label}-{engine}.txt")
        lead = VLLM_IMPORTS if step["kind"] == "vllm_bench" else 0
        p = engines.Process("py-spy", [tool, "record", "-p", str(self.fleet.engines[engine].pid), "-d", str(int(step["seconds"]) + lead), "-r", "50", "--nonblocking",
                                       "-f", "raw", "-o", into], os.path.join(self.logs, "py-spy.log"))
        found = {"engine": engine}
        yield found
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.child.wait(20)
        engines.end([p], 1)
        found["top"] = hottest(into)

    def versions(self):
        if self.fleet.simulated:
            return {"vllm": "simulated"}
        ask = ("import json, vllm, torch, importlib.metadata as m; print(json.dumps(dict(vllm=vllm.__version__, torch=torch.__version__, "
               "nixl=m.version('nixl'), gpus=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())])))")
        p = subprocess.run([os.environ["PY"], "-c", ask], capture_output=True, text=True, timeout=120)
        xpyd = subprocess.run([self.fleet.xpyd, "version"], capture_output=True, text=True, timeout=10).stdout.strip()
        return json.loads(p.stdout.splitlines()[-1]) | {"xpyd": xpyd} if p.returncode == 0 else {"error": p.stderr[-500:]}

    def save(self):
        """Writes all results so far; what is there is replaced only by what is whole."""
        self.result["seconds"] = round(time.time() - self.begin, 1)
        for name, write in (("summary.json", self.write_summary), ("runs.tar.gz", lambda p: self.write_tar(p, self.runs))):
            path = os.path.join(self.args.out, name)
            write(path + ".new")
            os.replace(path + ".new", path)

    def write_summary(self, path):
        with open(path, "w") as f:
            json.dump(self.result, f, indent=1)

    @staticmethod
    def write_tar(path, folder):
        with tarfile.open(path, "w:gz", compresslevel=4) as t:
            t.add(folder, arcname=os.path.basename(folder))

    def close(self):
        self.fleet.stop()
        self.save()
        self.write_tar(os.path.join(self.args.out, "logs.tar.gz"), self.logs)
        shutil.rmtree(os.path.join(self.args.out, "work"))


def spans(phases):
    """When each phase begins and ends, in seconds."""
    ends = [sum(p["seconds"] for p in phases[:i]) for i in range(len(phases) + 1)]
    return list(zip(ends, ends[1:]))


def arrivals(rnd, phases):
    """The times of a Poisson process whose rate is that of each phase, with the phase."""
    for (begin, end), phase in zip(spans(phases), phases):
        at = begin + rnd.expovariate(phase["rate"])
        while at < end:
            yield at, phase
            at += rnd.expovariate(phase["rate"])


def plans(log, told):
    """The plans for engines without a role of which a proxy's log tells from that byte on, with their times."""
    with open(log, "rb") as f:
        f.seek(told)
        lines = [json.loads(line) for line in f if b'"event":"plan"' in line]
    return [[line["time"], line["change"]] for line in lines]


def router_version(contenders):
    """What is installed beside the vllm-router of a contender."""
    beside = [os.path.dirname(os.path.expandvars(c["router"])) for c in contenders.values() if "router" in c]
    found = [os.path.basename(p).split("-")[1].removesuffix(".dist") for d in beside for p in glob.glob(f"{d}/vllm_router-*.dist-info")]
    return {"vllm-router": found[0]} if found else {}


def hottest(path, most=8):
    """The functions in which py-spy found the process most often, with their share of the samples that ran."""
    seen, total = {}, 0
    try:
        with open(path) as f:
            for line in f:
                stack, _, n = line.rstrip().rpartition(" ")
                total += int(n)
                for frame in set(stack.split(";")):
                    seen[frame] = seen.get(frame, 0) + int(n)
    except OSError:
        return []
    return [[frame, round(n / total, 3)] for frame, n in sorted(seen.items(), key=lambda x: -x[1])[:most * 4]]


def proxy_counters(text):
    """The counters of a proxy's metrics, by name and labels."""
    out = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.split("{")[0].endswith(("_total", "_sum", "_count")) and name.startswith("xpyd_"):
            out[name] = float(value)
    return out


def grown(before, after):
    return {k: round(v - before.get(k, 0), 6) for k, v in after.items() if v != before.get(k, 0)}


def short(totals):
    keys = ("completed", "median_ttft_ms", "p90_ttft_ms", "median_tpot_ms", "p90_tpot_ms", "p99_itl_ms", "max_itl_ms", "output_throughput")
    return ", ".join(f"{k} {totals[k]:.1f}" for k in keys if k in totals)


def brief(out):
    parts = [json.dumps(out[k]) for k in ("first", "all", "phases", "plans") if k in out]
    for s in out["streams"]:
        if "totals" not in s:
            parts.append(str(s))
            continue
        t, ms = s["totals"], s["totals"]["ms"]
        if "ttft" not in ms:
            parts.append(f"nothing came: {t['failures']}")
            continue
        parts.append(f"{s['stream']['input']}/{s['stream']['output']}: ok {t['completed']}, failed {t['failed']}, "
                     f"TTFT {ms['ttft']['median']:.0f}/{ms['ttft']['p90']:.0f}, TPOT {ms['tpot']['median']:.1f}, "
                     f"ITL p99 {ms['itl']['p99']:.0f}, {t['output_tokens_per_second']:.0f} tok/s")
    return "; ".join(parts + [told(out["engines"])])


def told(watched):
    """What the engines said of themselves, in short."""
    parts = []
    for name, e in watched.items():
        m = e["metrics"]
        if x := m.get("nixl_xfer_time_seconds"):
            parts.append(f"{name}: transfer {x['mean'] * 1e3:.1f} ms, {m.get('nixl_num_descriptors', {}).get('mean', 0):.0f} descriptors")
        parts.append(f"{name}: health {e['health_ms'].get('p50')}/{e['health_ms'].get('max')} ms, cores {e['cores']}")
    return "; ".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("do", choices=["run", "engines"])
    parser.add_argument("plan")
    parser.add_argument("--out", required=True)
    parser.add_argument("--xpyd", default="./xpyd")
    parser.add_argument("--limit", type=float, default=580)
    parser.add_argument("--first-gpu", type=int, default=0, help="the plan's GPU 0, so that two plans can share a machine")
    parser.add_argument("--round", type=int, default=1, help="the first round, so that runs of a plan have other prompts, and other contenders first")
    parser.add_argument("--engines", help="the engines.json of engines that run, to be taken in place of the plan's own")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--profile", help="of xpyd sim, in place of real engines")
    rig = Rig(parser.parse_args())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    failed = True
    try:
        rig.run() if rig.args.do == "run" else rig.keep_engines()
        failed = bool(rig.result["lost"]) or any("error" in s for s in rig.result["steps"])
    finally:
        rig.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
