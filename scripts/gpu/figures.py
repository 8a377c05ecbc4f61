"""The figures of a row: over all requests of a load, whatever streams or shapes they are of."""


def rank(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def of_bench(record):
    """A record of a run of xpyd bench serve, as pooled takes it."""
    if record.get("failure") or not record.get("ttft_us"):
        return {"error": record.get("failure") or "no token"}
    return {"at": record["due_us"] / 1e6, "prompt": record.get("asked_prompt_tokens", 0), "ttft_ms": record["ttft_us"] / 1e3, "e2e_ms": record["e2el_us"] / 1e3,
            "tokens": record["output_tokens"], "gaps_ms": [g / 1e3 for g in record.get("itl_us", [])]}


def pooled(records, seconds):
    """The figures that the goal of a row is about."""
    whole = [r for r in records if "error" not in r]
    out = {"completed": len(whole), "failed": len(records) - len(whole)}
    if not whole:
        return out
    ttft = [r["ttft_ms"] for r in whole]
    tpot = [(r["e2e_ms"] - r["ttft_ms"]) / max(1, r["tokens"] - 1) for r in whole]
    gaps = [g for r in whole for g in r["gaps_ms"]] or [0]
    figures = {"mean_ms": sum(r["e2e_ms"] for r in whole) / len(whole), "ttft_p50": rank(ttft, 0.5), "ttft_p90": rank(ttft, 0.9), "tpot_p50": rank(tpot, 0.5),
               "tpot_p90": rank(tpot, 0.9), "itl_p99": rank(gaps, 0.99), "tokens_per_second": sum(r["tokens"] for r in whole) / seconds}
    return out | {k: round(v, 3) for k, v in figures.items()}
