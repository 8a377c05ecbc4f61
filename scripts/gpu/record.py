"""Recordings of single engines for a profile: the step time of decode, prefills and transfers side by side."""
import random
import statistics
import threading
import time

from legs import ASK, Server, body
from watch import counters, difference, quantiles


def together(jobs):
    """Runs the jobs at the same time. The answer has their results in order, or raises what one raised."""
    out, ready = [None] * len(jobs), threading.Barrier(len(jobs))

    def one(i):
        ready.wait(60)
        try:
            out[i] = jobs[i]()
        except Exception as e:
            out[i] = e

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    for o in out:
        if isinstance(o, Exception):
            raise o
    return out


def events(server, ask):
    """When each event of the stream came, in seconds."""
    return [time.perf_counter() for line in server.post(ask | {"stream": True}) if line.startswith(b"data: {")]


def steps(fleet, step, model):
    """The time of a decode step by the number of requests in it and by their context. The prompts are sent
    once before, so that each request finds its own in the cache and all decode from the start."""
    url, rnd, out = fleet.urls[step["engine"]], random.Random(step.get("seed", 3)), []
    for context in step["contexts"]:
        for batch in step["batches"]:
            asks = [body(model, context, rnd, step.get("tokens", 100)) for _ in range(batch)]
            servers = [Server(url) for _ in asks]
            together([lambda s=s, a=a: s.whole(a | dict(max_tokens=1)) for s, a in zip(servers, asks)])
            came = together([lambda s=s, a=a: events(s, a) for s, a in zip(servers, asks)])
            first, last = max(t[1] for t in came), min(t[-2] for t in came)
            gaps = [b - a for t in came for a, b in zip(t, t[1:]) if a >= first and b <= last]
            # The mean is what counts. Clients of one machine see events of a step in one go, and gaps jitter.
            whole = [(t[-2] - t[1]) / (len(t) - 3) for t in came if len(t) > 4]
            out.append(dict(context=context, batch=batch, step_ms=round(statistics.mean(whole) * 1e3, 3),
                            gap_ms=quantiles([g * 1e3 for g in gaps])))
    return out


def prefills(fleet, step, model):
    """The time of prefills that arrive together at one engine, by length and number: of the last one and of each."""
    url, rnd, out = fleet.urls[step["engine"]], random.Random(step.get("seed", 4)), []
    for at_once in step["at_once"]:
        servers = [Server(url) for _ in range(at_once)]
        for length in step["lengths"]:
            last, each = [], []
            for _ in range(step["n"] + 1):
                asks = [body(model, length, rnd, 1) for _ in servers]
                begin = time.perf_counter()
                took = together([lambda s=s, a=a: timed(s, a) for s, a in zip(servers, asks)])
                last.append((time.perf_counter() - begin) * 1e3)
                each += took
            out.append(dict(length=length, at_once=at_once, last_ms=quantiles(last[1:]), each_ms=quantiles(each[at_once:])))
    return out


def timed(server, ask):
    begin = time.perf_counter()
    server.whole(ask)
    return (time.perf_counter() - begin) * 1e3


def transfers(fleet, step, model):
    """The decode legs of requests whose prompts are computed, by length and number at once: what NIXL says of
    the transfers, and the time to the first event."""
    urls, rnd, out = fleet.urls, random.Random(step.get("seed", 5)), []
    for at_once in step["at_once"]:
        prefill = Server(urls[step["prefill"]])
        servers = [Server(urls[step["decode"]]) for _ in range(at_once)]
        for length in step["lengths"]:
            first, before = [], None
            for i in range(step["n"] + 1):
                if i == 1:
                    before = counters(urls[step["decode"]])
                asks = [body(model, length, rnd, 2) for _ in servers]
                legs = [a | dict(kv_transfer_params=prefill.whole(a | dict(max_tokens=1, kv_transfer_params=ASK))["kv_transfer_params"])
                        for a in asks]
                first += together([lambda s=s, a=a: s.first_event(a) for s, a in zip(servers, legs)])
            out.append(dict(length=length, at_once=at_once, first_ms=quantiles(first[at_once:]),
                            decode=difference(before, counters(urls[step["decode"]]))))
    return out


def texts(url, asks, at_once):
    """The texts of the completions, some at once."""
    out = [None] * len(asks)

    def work(k):
        server = Server(url)
        for i in range(k, len(asks), at_once):
            out[i] = server.whole(asks[i])["choices"][0]["text"]

    together([lambda k=k: work(k) for k in range(at_once)])
    return out


def exact(fleet, step, model):
    """The same greedy prompts to the proxy and twice to one engine. Engines that batch differ from themselves
    now and then, so the second time says how often."""
    rnd = random.Random(step.get("seed", 6))
    asks = [body(model, rnd.randrange(*step["input"]), rnd, step["tokens"]) for _ in range(step["n"])]
    one, again = (texts(fleet.urls[step["engine"]], asks, step["at_once"]) for _ in range(2))
    through = texts(step["url"], asks, step["at_once"])
    same = lambda a, b: sum(x == y for x, y in zip(a, b))
    return dict(n=len(asks), tokens=step["tokens"], same_as_engine=same(through, one), engine_same_as_itself=same(again, one),
                distinct_texts=len(set(one)), empty=sum(not t for t in through))


def leave(fleet, step, model):
    """Clients that leave at a random moment, then the seconds until no engine holds blocks."""
    rnd = random.Random(step.get("seed", 8))
    plans = [(body(model, rnd.randrange(*step["input"]), rnd, 400), rnd.uniform(0, step["within"])) for _ in range(step["n"])]
    begin = time.perf_counter()

    def one(ask, after):
        time.sleep(rnd.uniform(0, step["spread"]))
        server, until = Server(step["url"]), time.perf_counter() + after
        server.conn.timeout = max(0.01, after)
        try:
            for _ in server.post(ask | {"stream": True}):
                if time.perf_counter() > until:
                    break
        except OSError:
            pass  # left before the answer began
        server.conn.close()

    together([lambda p=p: one(*p) for p in plans])
    left, usage = time.perf_counter(), {}
    while time.perf_counter() - left < step.get("wait", 40):
        usage = {e: counters(fleet.urls[e]).get("kv_cache_usage_perc") for e in step["engines"]}
        if not any(usage.values()):
            break
        time.sleep(0.1)
    return dict(n=len(plans), clients_s=round(left - begin, 2), empty_after_s=round(time.perf_counter() - left, 2), usage=usage)
