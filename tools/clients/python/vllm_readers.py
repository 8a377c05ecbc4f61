"""Has vLLM's own code read result files: vllm_readers.py DIR DETAILED NUMBER, run by vLLM's Python.

The readers are those of `vllm bench sweep plot_pareto`, up to where it draws, and the one that
`vllm bench serve` converts its results with. The result files of DETAILED have the lists of
`--save-detailed`, of which `vllm bench serve --plot-timeline` makes the bars of its plot.
"""

import argparse
import json
import sys
from pathlib import Path

import pandas
from vllm.benchmarks.plot import construct_timeline_data
from vllm.benchmarks.serve import save_to_pytorch_benchmark_format
from vllm.benchmarks.sweep.plot_pareto import _json_load_bytes, _pareto_frontier, _prepare_records


def timeline(result: dict) -> None:
    """The loop is that of vLLM's main_async, which draws the plot of its own run only."""
    requests = []
    for i, start in enumerate(result["start_times"]):
        itl, ttft = result["itls"][i], result["ttfts"][i]
        requests.append({
            "start_time": start, "ttft": ttft, "itl": itl, "latency": ttft + sum(itl),
            "prompt_len": result["input_lens"][i], "output_tokens": result["output_lens"][i],
        })
        assert result["errors"][i] == "" and result["generated_texts"][i], f"request {i} has no text"
        assert abs(ttft + sum(itl) - result["latencies"][i]) < 0.001, f"request {i}: TTFT and gaps are not the latency"
    assert len(requests) == result["num_prompts"]
    bars = construct_timeline_data(requests, [0.025, 0.05], ["short", "middle", "long"])
    assert len(bars) == sum(1 + len(r["itl"]) for r in requests), f"{len(bars)} bars"


def main(folder: Path, detailed: Path, number: int) -> None:
    runs = [f for f in detailed.glob("*.json") if not f.name.endswith(".run.json")]
    assert len(runs) == number, f"{len(runs)} result files, want {number}"
    for f in runs:
        timeline(json.loads(f.read_text()))
    files = sorted(folder.glob("*.json"))
    assert len(files) == number, f"{len(files)} files, want {number}"
    # `vllm bench sweep serve` collects the results of its runs in such a file.
    summary = folder / "summary.json"
    summary.write_text(json.dumps([json.loads(f.read_text()) for f in files]))
    records, skipped = _prepare_records(_json_load_bytes(summary), user_count_var="max_concurrency", gpu_count_var=None)
    assert len(records) == number and skipped == 0, f"{len(records)} records, {skipped} skipped"
    assert [r["user_count_estimate"] for r in records] == [r["max_concurrency"] for r in records]
    frontier = _pareto_frontier(pandas.DataFrame(records), "tokens_per_user", "tokens_per_gpu")
    assert 0 < len(frontier) <= number and (frontier["tokens_per_gpu"] > 0).all(), frontier
    for f in files:
        result = json.loads(f.read_text())
        save_to_pytorch_benchmark_format(argparse.Namespace(model=result["model_id"]), result, str(f))
        converted = json.loads(f.with_suffix(".pytorch.json").read_text())
        names = {r["metric"]["name"] for r in converted}
        want = {f"{s}_{m}_ms" for s in ("mean", "median", "std", "p99") for m in ("ttft", "tpot", "itl")}
        assert names == want, f"{f.name}: {sorted(names)}"
    print(f"{number} runs read, {len(frontier)} on vLLM's Pareto frontier")


main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
