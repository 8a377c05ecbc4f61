"""render.py: keeps what a run of rig.py brought home, and puts it as tables into docs/gpu.md.

  render.py --add FOLDER NAME   keeps FOLDER/summary.json, without what no table shows, as results/NAME.json
  render.py                     replaces each block of docs/gpu.md between <!-- NAME TABLE --> and <!-- end -->
  render.py --check             fails where the document has other tables than the results
"""
import json
import os
import re
import statistics
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
DOC = os.path.join(HERE, "..", "..", "docs", "gpu.md")
NIXL = ("nixl_xfer_time_seconds", "nixl_post_time_seconds", "nixl_bytes_transferred", "nixl_num_descriptors")


def rank(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, r)) + " |" for r in rows])


def ms(seconds, digits=1):
    return f"{seconds * 1e3:.{digits}f}"


# What is kept.

def add(folder, name):
    with open(os.path.join(folder, "summary.json")) as f:
        result = json.load(f)
    priced = prices_of(folder)
    for step in result["steps"]:
        for engine in step.get("engines", {}).values():
            engine["metrics"] = {k: v for k, v in engine["metrics"].items() if k.startswith("nixl") or "preemptions" in k}
            engine["cores"] = {k: v for k, v in engine["cores"].items() if k == "server"}
        if step.get("contender") == "auto" and "streams" in step:
            step["priced"] = priced(step)
            step["advice"] = {k: step["advice"][k] for k in ("prices", "stall_share")}
            step["proxy"] = {k: v for k, v in step["proxy"].items() if k.startswith("xpyd_decisions_total")}
        else:
            step.pop("proxy", None)
            step.pop("advice", None)
        step.pop("spies", None)
    with open(os.path.join(HERE, "results", name + ".json"), "w") as f:
        f.write(compact(result))


def compact(result):
    """JSON with a line for each step, so that changes can be read."""
    steps = ",\n  ".join(json.dumps(s) for s in result.pop("steps"))
    return json.dumps(result, indent=1)[:-2] + ',\n "steps": [\n  ' + steps + "\n ]\n}\n"


def prices_of(folder):
    """What the proxy of auto expected of each request, by its debug log, against the time it took."""
    costs = {}
    if not os.path.exists(os.path.join(folder, "logs.tar.gz")):
        return lambda step: []  # the rig was cut off before its end
    with tarfile.open(os.path.join(folder, "logs.tar.gz")) as logs:
        if "logs/proxy-auto.log" in logs.getnames():
            lines = (json.loads(line) for line in logs.extractfile("logs/proxy-auto.log") if b'"path priced"' in line)
            costs = {line["request_id"]: line for line in lines}
    runs = {}
    with tarfile.open(os.path.join(folder, "runs.tar.gz")) as t:
        for m in t:
            if m.name.endswith(".run.json") and "-auto@" in m.name:
                runs[m.name.split("/")[1]] = json.load(t.extractfile(m))

    def priced(step):
        out = []
        for i, _ in enumerate(step["streams"]):
            run = runs[f"{step['seed']}-auto@{step['rate']}x{step['workload']}.{i}"]
            for path in ("disaggregated", "decode_only"):
                pairs = [(costs[r["id"]], r["ttft_us"] / 1e3) for r in run["records"]
                         if r["ttft_us"] and costs.get(r["id"], {}).get("path") == path]  # without 0: no first token came
                if pairs:
                    out.append(expected(run["config"]["input_len"], path, pairs))
        return out

    return priced


def expected(length, path, pairs):
    own = "split_ms" if path == "disaggregated" else "local_ms"
    errors = [abs(c[own] - t) / t for c, t in pairs]
    half = lambda values: round(rank(values, 0.5), 3)
    return dict(input=length, path=path, n=len(pairs), tokens=half([c["prompt_tokens"] for c, _ in pairs]), split_ms=half([c["split_ms"] for c, _ in pairs]),
                local_ms=half([c["local_ms"] for c, _ in pairs]), ttft_ms=half([t for _, t in pairs]), error_p50=half(errors), error_p90=round(rank(errors, 0.9), 3))


# The tables. Each takes the result and gives Markdown.

def serve(result):
    rows = []
    for s in result["steps"]:
        if s["kind"] != "serve" or "streams" not in s or "trouble" in s:
            continue
        for stream in s["streams"]:
            t, size = stream["totals"], stream["stream"]
            m = t["ms"]
            rows.append((s["workload"], s["rate"], f"{size['input']}/{size['output']}", s["contender"], f"{m['ttft']['median']:.0f} / {m['ttft']['p90']:.0f}",
                         f"{m['tpot']['median']:.1f} / {m['tpot']['p90']:.1f}", f"{m['itl']['p99']:.0f}", f"{t['output_tokens_per_second']:.0f}", f"{t['completed']} / {t['failed']}"))
    # A cell's runs stand together, and repeats of a contender under each other.
    cells = list(dict.fromkeys(r[:3] for r in rows))
    rows.sort(key=lambda r: (cells.index(r[:3]), r[3]))
    return table(("traffic", "requests/s", "prompt/answer", "contender", "TTFT p50 / p90, ms", "TPOT p50 / p90, ms", "ITL p99, ms", "tokens/s", "whole / failed"), rows)


def goal(result):
    """auto, by its stall weight, against the better of always and never in each cell: the medians of its runs. Above
    1.00 auto is better."""
    measures = (lambda t: 1 / t["ms"]["ttft"]["p90"], lambda t: 1 / t["ms"]["tpot"]["p90"], lambda t: t["output_tokens_per_second"])
    cells = {}
    for s in result["steps"]:
        if s["kind"] == "serve" and "streams" in s and "trouble" not in s:
            for stream in s["streams"]:
                size = stream["stream"]
                cell = cells.setdefault((s["workload"], s["rate"], f"{size['input']}/{size['output']}"), {})
                cell.setdefault(s["contender"], []).append(stream["totals"])
    rows = []
    for cell, runs in cells.items():
        if not {"always", "never"} <= runs.keys():
            continue
        of = {c: [statistics.median(m(t) for t in totals) for m in measures] for c, totals in runs.items()}
        for name in sorted(c for c in runs if c.startswith("auto")):
            ratios = [a / max(x, y) for x, a, y in zip(of["always"], of[name], of["never"])]
            counts = " / ".join(str(len(runs[c])) for c in ("always", name, "never"))
            rows.append((*cell, name, counts, *(f"{r:.2f}" for r in ratios), "yes" if min(ratios) >= 0.95 else "no"))
    return table(("traffic", "requests/s", "prompt/answer", "contender", "runs of always / auto / never", "TTFT p90", "TPOT p90", "tokens/s", "within 5 %"), rows)


def trouble(result):
    rows = []
    for s in result["steps"]:
        if not (what := s.get("trouble")):
            continue
        done = f"{what['engine']} stopped for {what['seconds']} s" if what["signal"] == "STOP" else f"{what['engine']} killed"
        for stream in s["streams"]:
            t, size = stream["totals"], stream["stream"]
            m = t["ms"]
            rows.append((done, s["contender"], f"{size['input']}/{size['output']}", f"{m['ttft']['median']:.0f} / {m['ttft']['p90']:.0f} / {m['ttft']['max']:.0f}",
                         f"{m['itl']['max']:.0f}", f"{t['completed']} / {t['failed']}"))
    return table(("what happened", "contender", "prompt/answer", "TTFT p50 / p90 / most, ms", "longest pause of an answer, ms", "whole / failed"), rows)


def stall(result):
    rows = []
    for s in result["steps"]:
        if s["kind"] != "vllm_bench" or "totals" not in s:
            continue
        name = result["contenders"][s["contender"]]["decode"][0]
        t, decode = s["totals"], s["engines"][name]
        known = "most ids have no text" if result["engines"][name].get("blank") else "each id has a text"
        rows.append((known, f"{t['median_ttft_ms']:.0f} / {t['p90_ttft_ms']:.0f}", f"{t['median_tpot_ms']:.1f} / {t['p90_tpot_ms']:.1f}", f"{t['p99_itl_ms']:.0f}",
                     f"{t['output_throughput']:.0f}", f"{decode['health_ms']['max']:.0f}", f"{decode['cores'].get('server', {}).get('max', 0):.2f}",
                     ms(decode["metrics"][NIXL[0]]["mean"])))
    return table(("D's tokenizer", "TTFT p50 / p90, ms", "TPOT p50 / p90, ms", "ITL p99, ms", "tokens/s", "slowest /health of D, ms", "cores of D's API server, most", "transfer, ms"), rows)


def blocks(result):
    rows = []
    for s in result["steps"]:
        if s["kind"] != "compare":
            continue
        for r in s["rows"]:
            d = r["decode"]
            rows.append((s["contender"], f"{r['length']:,}", r["prefill_ms"]["n"], f"{d[NIXL[3]]['mean']:,.0f}", ms(d[NIXL[0]]["mean"]), ms(d[NIXL[1]]["mean"]), f"{r['prefill_ms']['p50']:.1f}",
                         f"{r['by_hand_ms']['p50']:.1f}", f"{r['proxy_ms']['p50']:.1f}", f"{r['proxy_ms']['p50'] - r['by_hand_ms']['p50']:+.1f}"))
    return table(("engines", "prompt", "n", "descriptors", "transfer, ms", "of it posting", "prefill leg", "TTFT by hand", "TTFT through xpyd", "difference"), rows)


def records(result, kind):
    return [r for s in result["steps"] if s["kind"] == "record" and s["step"]["record"] == kind for r in s["rows"]]


def steps(result):
    rows = records(result, "steps")
    contexts = list(dict.fromkeys(r["context"] for r in rows))
    by = {(r["context"], r["batch"]): r["step_ms"] for r in rows}
    return table(("requests in the batch", *(f"{c:,} tokens each, ms" for c in contexts)),
                 [(b, *(f"{by[c, b]:.2f}" for c in contexts)) for b in dict.fromkeys(r["batch"] for r in rows)])


def prefills(result):
    rows = records(result, "prefills")
    by = {(r["length"], r["at_once"]): r["last_ms"]["p50"] for r in rows}
    times = list(dict.fromkeys(r["at_once"] for r in rows))
    return table(("prompt", *(f"{k} at once, last of them, ms" for k in times)),
                 [(f"{n:,}", *(f"{by[n, k]:.1f}" for k in times)) for n in dict.fromkeys(r["length"] for r in rows)])


def transfers(result):
    rows = [(f"{r['length']:,}", r["at_once"], f"{r['decode'][NIXL[2]]['mean'] / 1e9:.2f}", f"{r['decode'][NIXL[3]]['mean']:,.0f}", ms(r["decode"][NIXL[0]]["mean"]),
             ms(r["decode"][NIXL[1]]["mean"]), f"{r['first_ms']['p50']:.1f}", f"{r['first_ms']['max']:.1f}") for r in records(result, "transfers")]
    return table(("prompt", "at once", "GB each", "descriptors", "transfer, ms", "of it posting", "decode leg to its first event, p50", "slowest"), rows)


def auto(result):
    rows = []
    for s in result["steps"]:
        for p in s.get("priced", []):
            rows.append((s["workload"], s["rate"], f"{p['input']:,}", p["path"], p["n"], f"{p['tokens']:,}", f"{p['split_ms']:.0f}", f"{p['local_ms']:.0f}", f"{p['ttft_ms']:.0f}",
                         f"{p['error_p50'] * 100:.0f} % / {p['error_p90'] * 100:.0f} %"))
    return table(("traffic", "requests/s", "prompt", "path taken", "requests", "tokens as estimated", "cost of the split, ms", "cost of decode alone, ms", "TTFT, ms", "cost off TTFT by, p50 / p90"), rows)


TABLES = {f.__name__: f for f in (serve, goal, trouble, stall, blocks, steps, prefills, transfers, auto)}


def rendered(text):
    def block(m):
        with open(os.path.join(HERE, "results", m[1] + ".json")) as f:
            return f"<!-- {m[1]} {m[2]} -->\n{TABLES[m[2]](json.load(f))}\n<!-- end -->"
    return re.sub(r"<!-- (\S+) (\w+) -->\n.*?<!-- end -->", block, text, flags=re.S)


def main(args):
    if args[:1] == ["--add"] and len(args) == 3:
        add(args[1], args[2])
        return
    if args not in ([], ["--check"]):
        raise SystemExit(__doc__)
    with open(DOC) as f:
        text = f.read()
    new = rendered(text)
    if args and new != text:
        raise SystemExit("docs/gpu.md: its tables are not those of scripts/gpu/results; run scripts/gpu/render.py")
    if not args:
        with open(DOC, "w") as f:
            f.write(new)


if __name__ == "__main__":
    main(sys.argv[1:])
