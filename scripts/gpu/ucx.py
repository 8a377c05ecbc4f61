"""ucx.py: how NIXL moves blocks between two processes of this machine, by UCX's settings.

  ucx.py [--out FOLDER] [--memory cuda | cpu] [--limit SECONDS]

For each setting two processes hold memory of one GPU, as a prefill and a decode engine do, and one reads what the
other has: a few large pieces, many small ones, and what a prompt of 5,000 tokens takes with Qwen3-8B. A try has its
own limit, and what it did not reach is left out. FOLDER gets ucx.json, and of each try which way UCX chose.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

BASE = {"UCX_TLS": "cuda_ipc,cuda_copy,sm,tcp,self", "UCX_NET_DEVICES": "lo", "UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info",
        "UCX_RCACHE_MAX_UNRELEASED": "1024", "NIXL_LOG_LEVEL": "WARN"}
GET = {"UCX_CUDA_IPC_ENABLE_GET_ZCOPY": "on"}
# Without NVLink UCX offers no reads by cuda_ipc, and without error handling NIXL takes no shared memory.
TRIES = (
    ("as it is", {}),
    ("reads by cuda_ipc", GET),
    ("reads by cuda_ipc, every transport", GET | {"UCX_TLS": "all"}),
    ("reads by cuda_ipc, expandable segments", GET | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ("shared memory with error handling", {"UCX_MM_ERROR_HANDLING": "y"}),
    ("writes", {"WAY": "WRITE"}),
    ("why", {"UCX_LOG_LEVEL": "debug", "CASES": "small"}),
)
CASES = {"large": (8, 16 << 20), "small": (256, 64 << 10), "prompt": (1440, 512 << 10)}
TELLING = re.compile(r"nvlink|cuda_ipc|fabric|software emulation|zero-copy|read from|put into|get into|remote memory", re.I)


def memory(kind):
    import torch
    size = max(n * each for n, each in CASES.values())
    return torch.empty(size, dtype=torch.uint8, device=kind)


def agent(name):
    from nixl._api import nixl_agent, nixl_agent_config
    return nixl_agent(name, nixl_agent_config(num_threads=4))  # as vLLM has it


def hold(kind):
    """The side that is read: says where its memory is, and stays until its input ends."""
    m, own = memory(kind), agent("target")
    m.fill_(7)
    if kind == "cuda":
        import torch
        torch.cuda.synchronize()
    own.register_memory(m)
    print(json.dumps({"agent": own.get_agent_metadata().hex(), "at": m.data_ptr()}), flush=True)
    sys.stdin.read()


def read(kind):
    """The side that reads: a line for each case, in milliseconds."""
    m, own = memory(kind), agent("reader")
    own.register_memory(m)
    there = json.loads(sys.stdin.readline())
    peer = own.add_remote_agent(bytes.fromhex(there["agent"]))
    way = os.environ.get("WAY", "READ")
    for case in os.environ.get("CASES", "small,large,prompt").split(","):
        n, each = CASES[case]
        m.zero_()
        # The pieces stand in reverse there, so that no two can be moved as one.
        mine = [(m.data_ptr() + i * each, each, 0) for i in range(n)]
        theirs = [(there["at"] + (n - 1 - i) * each, each, 0) for i in range(n)]
        times = [once(own, peer, way, kind, mine, theirs) for _ in range(6)]
        right = way == "WRITE" or bool((m[:n * each] == 7).all())
        print(json.dumps({"case": case, "pieces": n, "bytes": n * each, "first_ms": times[0], "ms": round(statistics.median(times[1:]), 2), "right": right}), flush=True)


def once(own, peer, way, kind, mine, theirs):
    where = "VRAM" if kind == "cuda" else "DRAM"
    h = own.initialize_xfer(way, own.get_xfer_descs(mine, where), own.get_xfer_descs(theirs, where), peer)
    begin = time.perf_counter()
    state = own.transfer(h)
    while state == "PROC":
        state = own.check_xfer_state(h)
    if state != "DONE":
        raise SystemExit(f"transfer: {state}")
    took = round((time.perf_counter() - begin) * 1e3, 2)
    own.release_xfer_handle(h)
    return took


def attempt(name, more, args):
    """The lines of one try, as far as it came within its limit."""
    log = os.path.join(args.out, f"ucx-{name.replace(' ', '-').replace(',', '')}.log")
    env = os.environ | BASE | more | {"UCX_LOG_FILE": log}
    begin, errors = time.time(), open(log + ".err", "w+")
    side = lambda which: subprocess.Popen([sys.executable, __file__, "--side", which, "--memory", args.memory], env=env,
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    target, reader = side("hold"), side("read")
    stop = threading.Timer(args.each, lambda: (target.kill(), reader.kill()))
    stop.start()
    try:
        reader.stdin.write(target.stdout.readline())
        reader.stdin.flush()
        rows = [json.loads(line) for line in reader.stdout if line.startswith("{")]
    except OSError:
        rows = []
    stop.cancel()
    for p in (target, reader):
        p.kill()
        p.wait()
    errors.seek(0)
    out = {"try": name, "set": more, "rows": rows, "way": way(log), "seconds": round(time.time() - begin, 1), "told": told(log)}
    if not rows:
        out["errors"] = errors.read()[-1500:]
    return out


def way(log):
    """How UCX moves all pieces, whatever their size, from memory of the one GPU into that of the other process."""
    asked, moves = re.compile(r"remote memory (read by ucp_get|write by ucp_put)\*\(multi\).*cuda"), False
    if os.path.exists(log):
        with open(log, errors="replace") as f:
            for line in f:
                moves = moves or bool(asked.search(line))
                if moves and "0..inf" in line:
                    return [part.strip() for part in line.split("|")[-3:-1]]
    return []


def told(log, most=200):
    """What UCX said of the way it takes, each line once."""
    if not os.path.exists(log):
        return []
    with open(log, errors="replace") as f:
        lines = (re.sub(r"^\[[^]]*\]\s*(\[[^]]*\]\s*)?", "", line).strip() for line in f if TELLING.search(line))
        return list(dict.fromkeys(lines))[:most]


def fastest(results):
    """The try that reads a prompt soonest, or nothing where none came so far."""
    done = [(r["ms"], x["try"]) for x in results for r in x["rows"] if r["case"] == "prompt" and r["right"] and "WAY" not in x["set"]]
    return min(done)[1] if done else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=".")
    parser.add_argument("--memory", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--limit", type=float, default=100)
    parser.add_argument("--each", type=float, default=15, help="seconds of one try, with the start of its processes")
    parser.add_argument("--side", choices=["hold", "read"])
    args = parser.parse_args()
    if args.side:
        return {"hold": hold, "read": read}[args.side](args.memory)
    begin, results = time.time(), []
    for name, more in TRIES:
        if time.time() - begin + args.each > args.limit:
            break
        results.append(attempt(name, more, args))
        print(f"{name}: " + ", ".join(f"{r['case']} {r['ms']} ms (first {r['first_ms']}){'' if r['right'] else ' WRONG'}" for r in results[-1]["rows"])
              + f" {results[-1].get('errors', '')}", flush=True)
        with open(os.path.join(args.out, "ucx.json"), "w") as f:
            json.dump({"fastest": fastest(results), "tries": results}, f, indent=1)
    print("fastest:", fastest(results))


if __name__ == "__main__":
    main()
