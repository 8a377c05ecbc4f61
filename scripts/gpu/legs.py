"""Single requests by hand, one at a time: what a prefill, a transfer and a proxy cost without load."""
import http.client
import json
import random
import time
import urllib.parse

from watch import counters, difference, quantiles

ASK = dict(do_remote_decode=True, do_remote_prefill=False, remote_engine_id=None, remote_block_ids=None, remote_host=None, remote_port=None)


class Server:
    """One kept connection to a server."""

    def __init__(self, url):
        self.conn = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=120)

    def post(self, body):
        """The open response to the completion."""
        self.conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = self.conn.getresponse()
        if r.status != 200:
            raise RuntimeError(f"completion: {r.status} {r.read()[:300]}")
        return r

    def whole(self, body):
        return json.loads(self.post(body).read())

    def first_event(self, body):
        """Milliseconds to the first event of the stream; the rest of it is read as well."""
        begin = time.perf_counter()
        r = self.post(body | {"stream": True})
        first = None
        for line in r:
            if first is None and line.startswith(b"data:"):
                first = (time.perf_counter() - begin) * 1e3
        return first


def prompt(length, rnd):
    return [rnd.randrange(260, 490) for _ in range(length)]


def body(model, length, rnd, tokens=4):
    return dict(model=model, prompt=prompt(length, rnd), max_tokens=tokens, temperature=0, ignore_eos=True)


def by_hand(p, d, ask):
    """Both legs without a proxy: milliseconds of the prefill alone, and to the first event."""
    begin = time.perf_counter()
    answer = p.whole(ask | dict(max_tokens=1, kv_transfer_params=ASK))
    middle = time.perf_counter()
    first = d.first_event(ask | dict(kv_transfer_params=answer["kv_transfer_params"]))
    return (middle - begin) * 1e3, (middle - begin) * 1e3 + first


def compare(fleet, step, model):
    """By hand and through the proxy, in turns, for each length of prompt."""
    rnd, out = random.Random(step.get("seed", 1)), []
    p, d = Server(fleet.urls[step["prefill"]]), Server(fleet.urls[step["decode"]])
    proxy = Server(step["url"])
    for length in step["lengths"]:
        own, hand, through = [], [], []
        before = counters(fleet.urls[step["decode"]])
        for i in range(step["n"] + 1):
            turns = [lambda: hand_into(own, hand, p, d, body(model, length, rnd)),
                     lambda: through.append(proxy.first_event(body(model, length, rnd)))]
            for turn in turns if i % 2 else reversed(turns):
                turn()
        seen = difference(before, counters(fleet.urls[step["decode"]]))
        # The first pair of requests opens connections and is left out.
        out.append(dict(length=length, prefill_ms=quantiles(own[1:]), by_hand_ms=quantiles(hand[1:]),
                        proxy_ms=quantiles(through[1:]), decode=seen))
    return out


def hand_into(own, hand, p, d, ask):
    prefill, first = by_hand(p, d, ask)
    own.append(prefill)
    hand.append(first)


def alone(fleet, step, model):
    """The time to the first token of one engine that does nothing else, for each length of prompt."""
    rnd, server, out = random.Random(step.get("seed", 2)), Server(fleet.urls[step["engine"]]), []
    for length in step["lengths"]:
        times = [server.first_event(body(model, length, rnd, 1)) for _ in range(step["n"] + 1)]
        out.append(dict(length=length, ttft_ms=quantiles(times[1:])))
    return out
