"""What engines do while they are measured: CPU of their processes, how late they answer, NIXL's counters."""
import os
import re
import threading
import time

from engines import get

TICK = os.sysconf("SC_CLK_TCK")
# Histograms of the decode engine whose sum and count are kept.
HISTOGRAMS = (
    "nixl_xfer_time_seconds", "nixl_post_time_seconds", "nixl_bytes_transferred", "nixl_num_descriptors",
    "request_prefill_time_seconds", "request_queue_time_seconds", "time_to_first_token_seconds",
    "inter_token_latency_seconds", "iteration_tokens_total")
COUNTERS = ("nixl_num_failed_transfers_total", "nixl_num_kv_expired_reqs_total", "num_preemptions_total")


def counters(url):
    """The sums and counts of an engine's metrics, over all its labels."""
    out = {}
    try:
        text = get(url + "/metrics", 20)
    except OSError:
        return out
    for m in re.finditer(r"^vllm:(\w+)(?:\{[^}]*\})? (\S+)$", text, re.M):
        out[m[1]] = out.get(m[1], 0) + float(m[2])
    return out


def difference(before, after):
    """Mean and count of each histogram between two readings."""
    out = {}
    for name in HISTOGRAMS:
        n = after.get(name + "_count", 0) - before.get(name + "_count", 0)
        if n > 0:
            total = after[name + "_sum"] - before.get(name + "_sum", 0)
            out[name] = {"mean": total / n, "count": int(n)}
    for name in COUNTERS:
        if grown := after.get(name, 0) - before.get(name, 0):
            out[name] = grown
    return out


def cpu_of(session):
    """CPU seconds of the session's processes, by pid, with the names of the processes."""
    out = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                head, _, tail = f.read().rpartition(")")
        except OSError:
            continue
        field = tail.split()
        if int(field[3]) == session:
            out[int(pid)] = (head.partition("(")[2], (int(field[11]) + int(field[12])) / TICK)
    return out


class Watch:
    """Samples the engines until it is stopped."""

    def __init__(self, fleet, names):
        self.fleet, self.names = fleet, names
        self.over = threading.Event()
        self.threads = []

    def __enter__(self):
        self.before = {n: counters(self.fleet.urls[n]) for n in self.names}
        self.health = {n: [] for n in self.names}
        self.cpu = {n: [] for n in self.names}
        for n in self.names:
            for job in (self.ask, self.measure):
                t = threading.Thread(target=job, args=(n,), daemon=True)
                t.start()
                self.threads.append(t)
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join(10)
        self.after = {n: counters(self.fleet.urls[n]) for n in self.names}

    def ask(self, name):
        while not self.over.wait(0.25):
            begin = time.monotonic()
            try:
                get(self.fleet.urls[name] + "/health", 5)
            except OSError:
                pass
            self.health[name].append((time.monotonic() - begin) * 1e3)

    def measure(self, name):
        while not self.over.wait(0.5):
            self.cpu[name].append((time.monotonic(), cpu_of(self.fleet.engines[name].pid)))

    def summary(self):
        return {n: {
            "metrics": difference(self.before[n], self.after[n]),
            "health_ms": quantiles(self.health[n]),
            "cores": self.cores(n),
        } for n in self.names}

    def cores(self, name):
        """Cores used by each process of the engine that used a twentieth: mean, and the most of half a second."""
        samples, out = self.cpu[name], {}
        for pid, (comm, _) in (samples[-1][1] if samples else {}).items():
            own = [(t, s[pid][1]) for t, s in samples if pid in s]
            rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(own, own[1:])]
            if rates and sum(rates) / len(rates) >= 0.05:
                main = "server" if pid == self.fleet.engines[name].pid else comm
                out[f"{main}"] = {"mean": round(sum(rates) / len(rates), 3), "max": round(max(rates), 3)}
        return out


def quantiles(values):
    if not values:
        return {}
    v = sorted(values)
    at = lambda q: round(v[min(len(v) - 1, int(q * len(v)))], 3)
    return {"p50": at(0.5), "p90": at(0.9), "max": round(v[-1], 3), "n": len(v)}
