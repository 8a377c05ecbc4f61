"""render.py: keeps what a run of rig.py brought home, and puts it as tables into docs/results/gpu.md.

  render.py --add FOLDER... NAME  keeps FOLDER/summary.json (or the ucx.json of ucx.py), without what no table shows,
                                as results/NAME.json. The steps of several folders stand one after the other, for
                                plans with the same engines and contenders. In place of a folder, a file of results/
                                adds what was kept before. +FOLDER lends what others than engines without a role did with
                                the same requests, where they did not run in the other folders
  render.py                     replaces each block of docs/results/gpu.md between <!-- NAME TABLE --> and <!-- end -->
                                and draws docs/results/img/gpu-NAME.svg for each block <!-- NAME pareto -->
  render.py --check             fails where the document or a drawing has other figures than the results
"""
import json
import os
import re
import statistics
import sys
import tarfile

import plot
from figures import rank

HERE = os.path.dirname(os.path.abspath(__file__))
DOC = os.path.join(HERE, "..", "..", "docs", "results", "gpu.md")
NIXL = ("nixl_xfer_time_seconds", "nixl_post_time_seconds", "nixl_bytes_transferred", "nixl_num_descriptors")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, r)) + " |" for r in rows])


def ms(seconds, digits=1):
    return f"{seconds * 1e3:.{digits}f}"


def load_of(step):
    """The load in short, which is part of the names of runs: requests a second, or c and how many are open at once."""
    return f"c{step['concurrency']}" if "concurrency" in step else step.get("rate") or "own"


def load_words(step):
    return f"{step['concurrency']} at once" if "concurrency" in step else step.get("rate") or "its own"


# What is kept.

def add(folders, name):
    if os.path.exists(os.path.join(folders[0], "ucx.json")):
        return add_tries(folders[0], name)
    results, more = [kept(folder) for folder in folders if folder[0] != "+"], [kept(folder[1:]) for folder in folders if folder[0] == "+"]
    whole = results[0]
    for hold, r in enumerate(results[1:], 1):
        both = whole["contenders"].keys() & r["contenders"].keys()
        if engines_of(r) != engines_of(whole) or any(r["contenders"][c] != whole["contenders"][c] for c in both):
            raise SystemExit("the folders differ in engines or contenders, so their steps cannot stand in one table")
        whole["contenders"] |= r["contenders"]
        whole["steps"] += [{"hold": hold} | s for s in r["steps"]]  # seeds are those of a plan
    for r in more:
        whole["steps"] += from_another(r, whole["steps"])
    with open(os.path.join(HERE, "results", name + ".json"), "w") as f:
        f.write(compact(whole))


def from_another(result, steps):
    """The steps of a run in which the same requests were sent to contenders that steps has not, but for engines without a
    role, which are what the other run was for."""
    def key(s):
        return s["workload"], load_of(s), s["seed"], s["all"]["completed"] + s["all"]["failed"], s.get("first", {}).get("completed")

    taken = {}
    for s in steps:
        if "all" in s:
            taken.setdefault(key(s), set()).add(s["contender"])
    return [{"beside": True} | s for s in result["steps"] if "all" in s and s["contender"] not in {NO_ROLES, *taken.get(key(s), {NO_ROLES, s["contender"]})}]


def engines_of(result):
    """The engines, on whichever GPUs they ran."""
    return {name: e | {"gpus": len(e["gpus"])} for name, e in result["engines"].items()}


def kept(folder):
    if folder.endswith(".json"):
        with open(folder) as f:
            return json.load(f)
    with open(os.path.join(folder, "summary.json")) as f:
        result = json.load(f)
    priced = prices_of(folder)
    for step in result["steps"]:
        for engine in step.get("engines", {}).values():
            engine["metrics"] = {k: v for k, v in engine["metrics"].items() if k.startswith("nixl") or "preemptions" in k}
            engine["cores"] = {k: v for k, v in engine["cores"].items() if k == "server"}
        if step.get("advice"):
            step["advice"] = {k: step["advice"][k] for k in ("prices", "stall_share") if k in step["advice"]}
        if step.get("contender") == "auto" and "streams" in step:
            step["priced"] = priced(step)
            step["proxy"] = {k: v for k, v in step["proxy"].items() if k.startswith("xpyd_decisions_total")}
        elif step.get("contender") == NO_ROLES:
            step["proxy"] = {k: v for k, v in step["proxy"].items() if k.startswith("xpyd_decisions_total")}
        else:
            step.pop("proxy", None)
            step.pop("advice", None)
        step.pop("spies", None)
    return result


def add_tries(folder, name):
    with open(os.path.join(folder, "ucx.json")) as f:
        tries = json.load(f)["tries"]
    kept = [{k: t[k] for k in ("try", "set", "way", "rows")} for t in tries if len(t["rows"]) > 1]  # one row: a look at the log
    with open(os.path.join(HERE, "results", name + ".json"), "w") as f:
        f.write("[\n " + ",\n ".join(json.dumps(t) for t in kept) + "\n]\n")


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
            run = runs[f"{step['seed']}-auto@{load_of(step)}x{step['workload']}.{i}"]
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
            rows.append((s["workload"], load_words(s), f"{size['input']}/{size['output']}", s["contender"], f"{m['ttft']['median']:.0f} / {m['ttft']['p90']:.0f}",
                         f"{m['tpot']['median']:.1f} / {m['tpot']['p90']:.1f}", f"{m['itl']['p99']:.0f}", f"{t['output_tokens_per_second']:.0f}", f"{t['completed']} / {t['failed']}"))
    # A cell's runs stand together, and repeats of a contender under each other.
    cells = list(dict.fromkeys(r[:3] for r in rows))
    rows.sort(key=lambda r: (cells.index(r[:3]), r[3]))
    return table(("traffic", "requests/s", "prompt/answer", "contender", "TTFT p50 / p90, ms", "TPOT p50 / p90, ms", "ITL p99, ms", "tokens/s", "whole / failed"), rows)


def goal(result):
    """auto, by its stall weight, against the better of always and never with the same prompts at the same times: the
    ratio of each round in which all three ran. Above 1.00 auto is better. The medians of the first three judge."""
    measures = (lambda t: 1 / t["ms"]["ttft"]["p90"], lambda t: 1 / t["ms"]["tpot"]["p90"], lambda t: t["output_tokens_per_second"],
                lambda t: 1 / t["ms"]["e2el"]["mean"])
    cells = {}
    for s in result["steps"]:
        if s["kind"] == "serve" and "streams" in s and "trouble" not in s:
            for stream in s["streams"]:
                size = stream["stream"]
                rounds = cells.setdefault((s["workload"], load_words(s), f"{size['input']}/{size['output']}"), {})
                rounds.setdefault((s.get("hold", 0), s["seed"]), {})[s["contender"]] = [m(stream["totals"]) for m in measures]
    rows = []
    for cell, rounds in cells.items():
        whole = [of for of in rounds.values() if {"always", "never"} <= of.keys()]
        for name in sorted({c for of in whole for c in of if c.startswith("auto")}):
            ratios = [[a / max(x, y) for x, a, y in zip(of["always"], of[name], of["never"])] for of in whole if name in of]
            each = [", ".join(f"{r:.2f}" for r in sorted(column)) for column in zip(*ratios)]
            held = min(statistics.median(column) for column in list(zip(*ratios))[:3]) >= 0.95
            rows.append((*cell, name, *each, "yes" if held else "no"))
    return table(("traffic", "requests/s", "prompt/answer", "contender", "TTFT p90", "TPOT p90", "tokens/s", "whole answer, mean", "within 5 %"), rows)


NO_ROLES = "no roles"
FLEET = ("always", "auto", "whole", NO_ROLES)


def fleet(result):
    """Engines without a role against every other contender with the same requests at the same times, over all requests of a
    load (of conversations, those after the first turn): medians of the rounds, and the ratios of each round to the best
    other. The goal: the median ratios of the mean whole answer at most 1.03 and of tokens/s at least 0.97, and worst in no
    percentile."""
    cells, beside = {}, {}
    for s in result["steps"]:
        if s["kind"] == "serve" and "mean_ms" in s.get("all", {}) and "trouble" not in s:
            load = load_words(s)
            cell = (s["workload"], f"{load}/s" if isinstance(load, (int, float)) else load)
            if s.get("beside"):
                of = beside.setdefault((*cell, s["seed"]), {})
            else:
                of = cells.setdefault(cell, {}).setdefault((s.get("hold", 0), s["seed"]), {})
            name = "whole" if s["contender"] == "whole by load" else s["contender"]  # two ways to balance them: the better one
            if name not in of or s["all"]["mean_ms"] < of[name]["mean_ms"]:
                of[name] = s["all"]
    rows, shown = [], [n for n in FLEET if n in result["contenders"]]
    for cell, rounds in cells.items():
        rounds = [beside.get((*cell, seed), {}) | of for (_, seed), of in rounds.items() if NO_ROLES in of]
        rounds = [of for of in rounds if len(of) > 1]
        if rounds:
            rows.append((*cell, len(rounds), *fleet_row(rounds, [n for n in shown if n != NO_ROLES])))
    order = " / ".join(shown)
    return table(("traffic", "load", "rounds", f"whole answer, mean, ms: {order}", "to the best other", "tokens/s", "to the best other", "TTFT p90, ms", "TPOT p90, ms", "ITL p99, ms", "goal"), rows)


def fleet_row(rounds, names):
    def middle(key):
        return [statistics.median(v) if (v := [of[n][key] for of in rounds if n in of]) else None for n in (*names, NO_ROLES)]

    def words(values, form):
        return " / ".join("–" if v is None else form.format(v) for v in values)

    def ratios(key, best):
        return [of[NO_ROLES][key] / best(of[n][key] for n in names if n in of) for of in rounds]

    mean, made = ratios("mean_ms", min), ratios("tokens_per_second", max)
    misses = ["whole answer"] if statistics.median(mean) > 1.03 else []
    misses += ["tokens/s"] if statistics.median(made) < 0.97 else []
    shown = [words(middle("mean_ms"), "{:,.0f}"), ", ".join(f"{r:.2f}" for r in sorted(mean)),
             words(middle("tokens_per_second"), "{:,.0f}"), ", ".join(f"{r:.2f}" for r in sorted(made))]
    for what, key, form in (("TTFT", "ttft_p90", "{:.0f}"), ("TPOT", "tpot_p90", "{:.1f}"), ("ITL", "itl_p99", "{:.0f}")):
        *others, own = middle(key)
        shown.append(words((*others, own), form))
        others = [v for v in others if v is not None]
        misses += [f"worst {what}"] if len(others) > 1 and own > max(others) else []
    return [*shown, "no: " + ", ".join(misses) if misses else "yes"]


def crossover(result):
    """The split (always) against whole engines (collocated) at each load: the medians of their runs. What is bold is better
    by more than 5 %."""
    cells = {}
    for s in result["steps"]:
        if s["kind"] == "serve" and "streams" in s and "trouble" not in s and s["contender"] in ("always", "collocated"):
            for stream in s["streams"]:
                size, t = stream["stream"], stream["totals"]
                load = load_words(s) if "concurrency" in s else f"{s['rate']}/s"
                cell = cells.setdefault((s["workload"], load, f"{size['input']}/{size['output']}"), {})
                made = t["output_tokens_per_second"] / plot.gpus_of(result, s["contender"])
                m = t["ms"]
                cell.setdefault(s["contender"], []).append([m["ttft"]["median"], m["ttft"]["p90"], m["tpot"]["median"], m["tpot"]["p90"], m["itl"]["p99"], m["e2el"]["median"], 1 / made])
    rows = []
    for cell, runs in cells.items():
        if len(runs) == 2:
            split, whole = ([statistics.median(column) for column in zip(*runs[name])] for name in ("always", "collocated"))
            rows.append((*cell, *(both(a, b, form) for a, b, form in zip(split, whole, ("{:.0f}", "{:.0f}", "{:.1f}", "{:.1f}", "{:.0f}", "{:,.0f}", "")))))
    return table(("traffic", "load", "prompt/answer", "TTFT p50, ms", "TTFT p90, ms", "TPOT p50, ms", "TPOT p90, ms", "ITL p99, ms", "whole answer p50, ms", "tokens/s of a GPU"), rows)


def both(split, whole, form):
    """Two figures of which the smaller is better, or the inverse of two of which the larger is."""
    words = [form.format(v) if form else f"{1 / v:.0f}" for v in (split, whole)]
    if max(split, whole) > 1.05 * min(split, whole):
        at = 0 if split < whole else 1
        words[at] = f"**{words[at]}**"
    return " / ".join(words)


def agrees(result, simulated):
    """What simulated engines took for the same prompts at the same times, as a part of what the engines took: the median of
    the rounds of a cell."""
    def taken(of):
        return {(s.get("hold", 0), s["seed"], s["workload"], load_words(s), f"{stream['stream']['input']}/{stream['stream']['output']}", s["contender"]):
                [stream["totals"]["ms"]["ttft"]["median"], stream["totals"]["ms"]["ttft"]["p90"], stream["totals"]["ms"]["tpot"]["median"],
                 stream["totals"]["ms"]["tpot"]["p90"], stream["totals"]["output_tokens_per_second"]]
                for s in of["steps"] if s["kind"] == "serve" and "streams" in s and "trouble" not in s for stream in s["streams"]}
    real, cells = taken(result), {}
    for key, figures in taken(simulated).items():
        if key in real:
            cells.setdefault(key[2:], []).append([b / a for a, b in zip(real[key], figures)])
    rows = [(*cell, len(rounds), *(f"{statistics.median(column):.2f}" for column in zip(*rounds))) for cell, rounds in sorted(cells.items(), key=lambda item: (item[0][0], str(item[0][1]).rjust(20), item[0][2:]))]
    return table(("traffic", "requests/s", "prompt/answer", "contender", "rounds", "TTFT p50", "TTFT p90", "TPOT p50", "TPOT p90", "tokens/s"), rows)


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


def client(result):
    """What vllm bench serve measured, the runs of one load next to each other."""
    rows = []
    for s in result["steps"]:
        if s["kind"] == "vllm_bench" and "totals" in s:
            t, size = s["totals"], s["stream"]
            rows.append((f"{size['input']}/{size['output']}", s["rate"], s["contender"], f"{t['p50_ttft_ms']:.0f} / {t['p90_ttft_ms']:.0f}", f"{t['p50_tpot_ms']:.1f} / {t['p90_tpot_ms']:.1f}",
                         f"{t['p99_itl_ms']:.0f}", f"{t['mean_e2el_ms']:,.0f}", f"{t['request_throughput']:.2f}", f"{t['completed']} / {t['failed']}"))
    rows.sort(key=lambda r: r[:3])
    return table(("prompt/answer", "requests/s", "contender", "TTFT p50 / p90, ms", "TPOT p50 / p90, ms", "ITL p99, ms", "whole answer, mean, ms", "requests/s done", "whole / failed"), rows)


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
            rows.append((s["workload"], load_words(s), f"{p['input']:,}", p["path"], p["n"], f"{p['tokens']:,}", f"{p['split_ms']:.0f}", f"{p['local_ms']:.0f}", f"{p['ttft_ms']:.0f}",
                         f"{p['error_p50'] * 100:.0f} % / {p['error_p90'] * 100:.0f} %"))
    return table(("traffic", "requests/s", "prompt", "path taken", "requests", "tokens as estimated", "cost of the split, ms", "cost of decode alone, ms", "TTFT, ms", "cost off TTFT by, p50 / p90"), rows)


def ucx(tries):
    rows = []
    for t in tries:
        took = {r["case"]: r for r in t["rows"] if r["right"]}
        large = took["large"]
        names = " ".join(f"`{k}={v}`" for k, v in t["set"].items() if k != "WAY")
        rows.append((t["try"], names, ", ".join(t["way"]), *(took[c]["ms"] for c in ("small", "large", "prompt")), f"{large['bytes'] / large['ms'] / 1e6:.1f}"))
    return table(("", "set beside `UCX_TLS`", "UCX takes", "256 pieces of 64 KiB, ms", "8 of 16 MiB, ms", "1,440 of 512 KiB, ms", "GB/s of the 8"), rows)


TABLES = {f.__name__: f for f in (serve, goal, fleet, crossover, trouble, stall, client, blocks, steps, prefills, transfers, auto, ucx)}


BLOCK = re.compile(r"<!-- (\S+) (\w+) -->\n.*?<!-- end -->", re.S)


def result_of(name):
    with open(os.path.join(HERE, "results", name + ".json")) as f:
        return json.load(f)


def made(result):
    """On what and when a result was measured, as a line below its table."""
    if not isinstance(result, dict):
        return ""
    of = result["versions"]
    commit = re.search(r"commit (?!unknown)(\S{7})", of["xpyd"])
    return (f"\n\n{result['started'][:10]}, {len(of['gpus'])} {of['gpus'][0].removeprefix('NVIDIA ')}, vLLM {of['vllm']}, NIXL {of['nixl']}"
            + (f", xpyd {commit[1]}" if commit else ""))


def rendered(text):
    def block(m):
        if m[2] == "pareto":
            what = f"![Tokens/s of a GPU against those of one answer](img/gpu-{m[1]}.svg)"
        elif m[2] == "agrees":  # with the same plans, under the same name
            what = agrees(result_of(m[1]), result_of("sim-" + m[1]))
        else:
            what = TABLES[m[2]](result_of(m[1])) + made(result_of(m[1]))
        return f"<!-- {m[1]} {m[2]} -->\n{what}\n<!-- end -->"
    return BLOCK.sub(block, text)


def drawn(text):
    """The document's drawings, by the names of their files."""
    return {f"gpu-{m[1]}.svg": plot.pareto(result_of(m[1])) for m in BLOCK.finditer(text) if m[2] == "pareto"}


def is_drawn(images, drawings):
    """Whether the folder has these drawings and no others of results."""
    have = {n for n in os.listdir(images) if n.startswith("gpu-") and n.endswith(".svg")}
    return have == drawings.keys() and all(read(os.path.join(images, n)) == svg for n, svg in drawings.items())


def read(path):
    with open(path) as f:
        return f.read()


def main(args):
    if args[:1] == ["--add"] and len(args) >= 3:
        add(args[1:-1], args[-1])
        return
    if args not in ([], ["--check"]):
        raise SystemExit(__doc__)
    text = read(DOC)
    new, drawings, images = rendered(text), drawn(text), os.path.join(os.path.dirname(DOC), "img")
    if args and (new != text or not is_drawn(images, drawings)):
        raise SystemExit("docs/results/gpu.md: its tables or drawings are not those of scripts/gpu/results; run scripts/gpu/render.py")
    if not args:
        for path, what in {DOC: new, **{os.path.join(images, n): svg for n, svg in drawings.items()}}.items():
            with open(path, "w") as f:
                f.write(what)


if __name__ == "__main__":
    main(sys.argv[1:])
