"""plot.py: the results of a run as a picture (SVG): throughput of a GPU against the speed of an answer, by load."""
import math
import statistics
from xml.sax.saxutils import escape

from engines import used

WIDTH, HEIGHT, GAP = 330, 250, 20  # of one panel, and between two
LEFT, TOP, RIGHT, BOTTOM = 46, 26, 40, 40  # around a panel's axes
LEGEND = 24
COLORS = {"always": "#3b82c4", "auto": "#e08a1e", "collocated": "#2a9d6f", "never": "#c4504b", "vllm-router": "#9467bd"}
OTHERS = ("#8c6d31", "#5f9ea0", "#b05fa0")
# Pages are light or dark, and the picture has no ground of its own.
STYLE = """text { font: 11px sans-serif; fill: #444 } .head { font-weight: bold } .grid { stroke: #8885; stroke-width: 1 }
@media (prefers-color-scheme: dark) { text { fill: #ccc } }"""


def gpus_of(result, contender):
    """How many GPUs the contender's engines hold."""
    return len({g for n in used(result["contenders"][contender]) for g in result["engines"][n]["gpus"]})


def points(result):
    """{workload: {contender: [(load, tokens/s of one answer, tokens/s of a GPU)]}}: the medians of a load's runs, by
    rising load, for the workloads that have several loads. An answer's speed is 1 / TPOT p50, over all streams."""
    runs = {}
    for s in result["steps"]:
        if s["kind"] != "serve" or "streams" not in s or "trouble" in s:
            continue
        totals = [x["totals"] for x in s["streams"]]
        n = sum(t["completed"] for t in totals)
        tpot = sum(t["ms"]["tpot"]["median"] * t["completed"] for t in totals) / n
        load = ("at once", s["concurrency"]) if "concurrency" in s else ("/s", s["rate"])
        made = sum(t["output_tokens_per_second"] for t in totals) / gpus_of(result, s["contender"])
        runs.setdefault(s["workload"], {}).setdefault(s["contender"], {}).setdefault(load, []).append((1000 / tpot, made))
    out = {}
    for workload, contenders in runs.items():
        if len({load for loads in contenders.values() for load in loads}) > 1:
            out[workload] = {name: [(load, *(statistics.median(column) for column in zip(*loads[load]))) for load in sorted(loads)]
                             for name, loads in sorted(contenders.items())}
    return out


def ticks(most):
    """Round numbers from 0 to what is at least most."""
    step = 10 ** math.floor(math.log10(most))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if most / s <= 5)
    return [round(i * step, 6) for i in range(math.ceil(most / step) + 1)]


def color(names):
    others = iter(OTHERS * len(names))
    return {n: COLORS.get(n) or next(others) for n in names}


def text(x, y, words, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def panel(left, top, title, contenders, colors):
    xs, ys = (ticks(max(p[axis] for line in contenders.values() for p in line)) for axis in (1, 2))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    at_x = lambda v: left + LEFT + wide * v / xs[-1]
    at_y = lambda v: top + TOP + high * (1 - v / ys[-1])
    out = [text(left + LEFT, top + 14, f"{title}: tokens/s of a GPU", more=' class="head"')]
    for v in xs:
        out.append(f'<path class="grid" d="M{at_x(v):.1f} {at_y(0):.1f}V{at_y(ys[-1]):.1f}"/>')
        out.append(text(at_x(v), at_y(0) + 14, f"{v:g}", "middle"))
    for v in ys:
        out.append(f'<path class="grid" d="M{at_x(0):.1f} {at_y(v):.1f}H{at_x(xs[-1]):.1f}"/>')
        out.append(text(at_x(0) - 5, at_y(v) + 4, f"{v:g}", "end"))
    out.append(text(at_x(xs[-1] / 2), top + HEIGHT - 10, "tokens/s of one answer (1 / TPOT p50)", "middle"))
    furthest = {}
    for name, line in contenders.items():
        spots = [(at_x(x), at_y(y)) for _, x, y in line]
        out.append(f'<polyline fill="none" stroke="{colors[name]}" stroke-width="2" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in spots)}"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colors[name]}"/>' for x, y in spots]
        for (load, *_), spot in zip(line, spots):
            furthest[load] = max(furthest.get(load, spot), spot)
    # A load's name stands once, beside its point that is furthest to the right.
    out += [text(x + 7, y + 4, f"{n:g}/s" if unit == "/s" else f"{n} {unit}") for (unit, n), (x, y) in furthest.items()]
    return out


def pareto(result):
    panels = points(result)
    if not panels:
        raise SystemExit("plot: no workload has two loads, so there is no line to draw")
    names = sorted({n for contenders in panels.values() for n in contenders})
    colors = color(names)
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = max(columns * (WIDTH + GAP), 460), LEGEND + rows * (HEIGHT + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">', f"<style>{STYLE}</style>"]
    x = 10
    for name in names:
        out += [f'<circle cx="{x}" cy="14" r="4" fill="{colors[name]}"/>', text(x + 8, 18, name)]
        x += 26 + 7 * len(name)
    for i, (workload, contenders) in enumerate(panels.items()):
        out += panel(i % columns * (WIDTH + GAP), LEGEND + i // columns * (HEIGHT + GAP), workload, contenders, colors)
    return "\n".join(out + ["</svg>"]) + "\n"
