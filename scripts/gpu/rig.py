"""rig.py: runs a plan of experiments with xpyd and real vLLM engines on the GPUs of this machine.

  rig.py run PLAN.json --out DIR [--xpyd PATH] [--limit SECONDS] [--dry-run]

A plan starts its engines once, then takes its steps one after the other. After each step DIR has
summary.json and runs.tar.gz with all results so far. No step begins that cannot end within the
limit, and every process is ended, whatever happens. --dry-run takes the same steps with simulated
engines in a few seconds; its figures mean nothing.
"""
import argparse
import contextlib
import datetime
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import engines
import legs
from watch import Watch

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
        self.fleet = engines.Fleet(os.path.abspath(args.xpyd), self.logs, self.defaults, args.dry_run)
        self.result = {"plan": os.path.basename(args.plan), "about": self.plan["about"], "dry_run": args.dry_run,
                       "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                       "steps": [], "not_run": []}

    def left(self):
        return self.args.limit - RESERVE - (time.time() - self.begin)

    def engine_specs(self):
        gpus, specs = self.plan["gpus"], {}
        for topology in self.plan.get("topologies", []):
            specs |= engines.expand(topology, gpus)
        specs |= {n: s | {"gpus": [g % gpus for g in s["gpus"]]} for n, s in self.plan.get("engines", {}).items()}
        return {n: self.plan.get("defaults", {}) | s for n, s in specs.items()}

    def run(self):
        specs = self.engine_specs()
        self.result |= {"engines": specs, "contenders": self.plan["contenders"], "versions": self.versions()}
        say(f"starting {', '.join(specs)}")
        self.fleet.start(specs)
        self.result["up_after_s"], self.result["lost"] = self.fleet.wait(min(self.plan.get("start_limit", 300), self.left()))
        say(f"up: {self.result['up_after_s']}")
        for name, log in self.result["lost"].items():
            say(f"LOST {name}: {log}")
        for step in self.plan["steps"]:
            self.take(step)

    def take(self, step):
        name = next(k for k in ("fill", "serve", "compare", "alone") if k in step)
        for i in range(step.get("repeat", 1)):
            need = self.seconds(step)
            if need > self.left():
                say(f"no time for {json.dumps(step)}: {need:.0f} s of {self.left():.0f} s")
                self.result["not_run"].append(step)
                return
            # Contenders begin in turns, so that none is always the first after a pause.
            turn = dict(step, repeat=i + 1)
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
        return step.get("takes", 10) if "serve" not in step else len(step["serve"]) * (step["seconds"] + 12)

    # The kinds of steps.

    def serve(self, step):
        names = step["serve"]
        at = (step["repeat"] - 1) % len(names)
        for name in names[at:] + names[:at]:
            try:
                self.load(name, step)
            except Exception as e:  # one contender that fails must not cost the others
                self.fail("serve", dict(step, serve=[name]), e)
            self.save()

    def load(self, name, step):
        contender = self.plan["contenders"][name]
        url = self.fleet.serve(name, contender)
        streams = self.plan["workloads"][step["workload"]]
        watched = [contender["direct"]] if "direct" in contender else contender.get("prefill", []) + contender["decode"]
        label = f"{step.get('label', '')}{name}@{step['rate']}x{step['workload']}.{step['repeat']}".replace("/", "-")
        out = {"kind": "serve", "contender": name, "workload": step["workload"], "rate": step["rate"], "repeat": step["repeat"],
               "label": step.get("label", "")}
        with contextlib.ExitStack() as stack:
            spies = [stack.enter_context(self.spy(e, label, step)) for e in step.get("spy", []) if e in watched]
            watch = stack.enter_context(Watch(self.fleet, watched))
            benches = [self.bench(url, label, i, s, step) for i, s in enumerate(streams)]
            codes = [self.finish(b, step) for b in benches]
        out |= {"streams": [self.totals(label, i, s, c) for i, (s, c) in enumerate(zip(streams, codes))],
                "engines": watch.summary()}
        if any(spies):
            out["spies"] = [s for s in spies if s]
        if contender.get("mode") == "auto":
            out["advice"] = self.advice()
        self.result["steps"].append(out)
        say(f"{label}: {brief(out)}")

    def bench(self, url, label, i, stream, step):
        rate, seconds = step["rate"] * stream.get("share", 1), step["seconds"]
        lead = step.get("lead", 4)
        if self.args.dry_run:
            seconds, rate = 1, max(rate, 4)
        argv = [self.fleet.xpyd, "bench", "serve", "--url", url, "--model", self.defaults["model"], "--input-len", str(stream["input"]),
                "--output-len", str(stream["output"]), "--rate", str(rate), "--num-prompts", str(max(2, round(rate * seconds))),
                "--warmups", str(lead), "--seed", str(step.get("seed", 7) * 1000 + step["repeat"] * 10 + i + len(self.result["steps"]) * 100),
                "--temperature", "0", "--label", label, "--out", os.path.join(self.runs, f"{label}.{i}"), "--no-progress", "--format", "table",
                "--max-lateness", "0"]
        if stream.get("spread"):
            argv += ["--range-ratio", str(stream["spread"])]
        return engines.Process("bench", argv, os.path.join(self.logs, "bench.log"))

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

    # What is asked beside the load.

    def advice(self):
        try:
            return json.loads(engines.get(self.fleet.admin + "/advice"))
        except (OSError, ValueError) as e:
            return {"error": str(e)}

    @contextlib.contextmanager
    def spy(self, engine, label, step):
        """Where the engine's API server spends its time, by py-spy where it is installed."""
        tool = shutil.which("py-spy")
        if not tool or self.args.dry_run:
            yield None
            return
        into = os.path.join(self.logs, f"spy-{label}-{engine}.txt")
        p = engines.Process("py-spy", [tool, "record", "-p", str(self.fleet.engines[engine].pid), "-d", str(int(step["seconds"])), "-r", "50", "--nonblocking",
                                       "-f", "raw", "-o", into], os.path.join(self.logs, "py-spy.log"))
        found = {"engine": engine}
        yield found
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.child.wait(20)
        engines.end([p], 1)
        found["top"] = hottest(into)

    def versions(self):
        if self.args.dry_run:
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


def brief(out):
    parts = []
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
    for name, e in out["engines"].items():
        m = e["metrics"]
        if x := m.get("nixl_xfer_time_seconds"):
            parts.append(f"{name}: transfer {x['mean'] * 1e3:.1f} ms, {m.get('nixl_num_descriptors', {}).get('mean', 0):.0f} descriptors")
        parts.append(f"{name}: health {e['health_ms'].get('p50')}/{e['health_ms'].get('max')} ms, cores {e['cores']}")
    return "; ".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("do", choices=["run"])
    parser.add_argument("plan")
    parser.add_argument("--out", required=True)
    parser.add_argument("--xpyd", default="./xpyd")
    parser.add_argument("--limit", type=float, default=580)
    parser.add_argument("--dry-run", action="store_true")
    rig = Rig(parser.parse_args())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    failed = True
    try:
        rig.run()
        failed = bool(rig.result["lost"]) or any("error" in s for s in rig.result["steps"])
    finally:
        rig.close()
    sys.exit(1 if failed else 0)


main()
