"""What the checks know of the rest: the fleet that the runner has started (its addresses
come by the environment), and how to report.

Of each check one line of JSON goes to standard output: {"check": name, "failure": text or null}.
"""

import json
import os
import re
import threading
import time
import traceback
import urllib.request

URL = os.environ["CLIENTS_URL"]  # of xpyd, without /v1
KEY = os.environ["CLIENTS_KEY"]
ADMIN = os.environ["CLIENTS_ADMIN"]
VICTIM = os.environ["CLIENTS_VICTIM"]  # a second xpyd in front of the same engines, which a check kills
VICTIM_PID = int(os.environ["CLIENTS_VICTIM_PID"])
PREFILL = os.environ["CLIENTS_PREFILL"].split(",")
DECODE = os.environ["CLIENTS_DECODE"].split(",")

CHECKS = []


def check(run):
    """Registers a check; its name is the function's."""
    CHECKS.append(run)
    return run


def run_all():
    for run in CHECKS:
        failure = None
        try:
            run()
        except Exception as err:  # anything that the SDK raises is a finding
            line = traceback.extract_tb(err.__traceback__)[1].lineno  # [0] is the call above
            failure = f"line {line}: {type(err).__name__}: {err}"
        print(json.dumps({"check": run.__name__.replace("_", " "), "failure": failure}), flush=True)


def expect(ok, said):
    if not ok:
        raise AssertionError(said)


def same(got, want, what):
    expect(got == want, f"{what}: {got!r}, want {want!r}")


def raises(kind, call):
    """The error of that class, itself and not a subclass, that call raises."""
    err = raised(kind, call)
    expect(err is not None, f"no {kind.__name__}")
    return err


def raised(kind, call):
    """The error of that class, or None if call returns. Any other error is a failure."""
    try:
        call()
    except kind as err:
        same(type(err).__name__, kind.__name__, "class of the error")
        return err
    return None


def call(url, body=None, method=None):
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def fault(text):
    """Makes every decode engine misbehave, as text says; "" ends that."""
    for engine in DECODE:
        call(engine + "/sim/fault", text or {})


def legs(request_id):
    """What the engines got for a request: how many prefill legs, how many decode legs.
    Those that only give a handle back have an id that says so."""
    records = [r for e in PREFILL + DECODE for r in json.loads(call(e + "/sim/requests"))]
    mine = [r for r in records if re.fullmatch(re.escape(request_id) + "-[0-9a-f]{8}", r["request_id"])]
    return sum(r["leg"] == "prefill" for r in mine), sum(r["leg"] != "prefill" for r in mine)


def refusals():
    """How many completions xpyd has answered with an error so far. These it counts before the client has the answer,
    all others after it."""
    text = call(ADMIN + "/metrics")
    return sum(float(n) for n in re.findall(r'^xpyd_requests_total\{.*outcome="(?:client_)?error".*\} (\S+)$', text, re.M))


def wait(what, condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"not within {seconds} s: {what}")
        time.sleep(0.02)


def nothing_held():
    """No engine has a block pinned or a request running. Well before a lease of 30 s ends."""
    def idle():
        pinned = [json.loads(call(e + "/sim/ledger"))["pinned"] for e in PREFILL + DECODE]
        running = [json.loads(call(e + "/load"))["server_load"] for e in PREFILL + DECODE]
        return not any(pinned + running)
    wait("every block free and every engine idle", idle)


def retried(status, request_id, ask):
    """The engines are busy until xpyd has said so. ask(request_id) succeeds at the SDK's second attempt, or at its
    third if this machine stalls."""
    before = refusals()
    fault(f"status={status}")

    def mend():
        try:
            wait("a first attempt", lambda: refusals() > before)
        finally:
            fault("")
    join = later(mend)
    begun = time.monotonic()
    ask(request_id)
    took = time.monotonic() - begun
    join()
    n = refusals() - before + 1
    expect(2 <= n <= 3 and took >= n - 1, f"{n} attempts in {took:.2f} s, want two, and each the second later that Retry-After asks for")
    prefill, decode = legs(request_id)
    expect(prefill == decode and prefill in (2 * n - 1, 2 * n), f"{prefill} prefill, {decode} decode legs in {n} attempts, want two rounds that fail, then one")


def times_out(kind, request_id, ask):
    """ask(request_id, n) gives up while the prompt is computed, after which no leg is left. If this machine stalls, the
    engine may not have the request by then, or the client may find its answer. Then ask has another try, with a
    prompt of which nothing is cached."""
    for n in range(3):
        name = f"{request_id}-{n}"
        if raised(kind, lambda: ask(name, n)) is None:
            expect(n < 2, f"no {kind.__name__}")
            continue
        nothing_held()
        got = legs(name)
        if got != (0, 0) or n == 2:
            same(got, (1, 0), "prefill and decode legs")
            return


def later(action):
    """Runs action in a thread, whose error join passes on."""
    failed = []

    def run():
        try:
            action()
        except Exception as err:
            failed.append(err)

    thread = threading.Thread(target=run)
    thread.start()

    def join():
        thread.join()
        if failed:
            raise failed[0]
    return join
