"""Engines and proxies as processes: real vLLM on GPUs, or `xpyd sim` in a dry run."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HOST = "127.0.0.1"

# An engine with the role both serves in either pool, and as a whole engine.
KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer", "both": "kv_both"}


def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def get(url, timeout=5):
    return urllib.request.urlopen(url, timeout=timeout).read().decode()


def expand(topology, gpus):
    """The engines of "1P3D", "2C" (collocated) or "TP2-TP2" (one of each role, tensor parallel), placed
    on the GPUs in turn. Engines beyond the last GPU share one."""
    width, out, letters = 1, {}, {"prefill": "P", "decode": "D", "plain": "C"}
    if m := re.fullmatch(r"(\d+)P(\d+)D", topology):
        roles = ["prefill"] * int(m[1]) + ["decode"] * int(m[2])
    elif m := re.fullmatch(r"(\d+)C", topology):
        roles = ["plain"] * int(m[1])
    elif m := re.fullmatch(r"TP(\d+)-TP\1", topology):
        width, roles = int(m[1]), ["prefill", "decode"]
    else:
        raise SystemExit(f"topology {topology!r}: want 1P1D, 2C or TP2-TP2")
    if width > gpus:
        raise SystemExit(f"topology {topology!r} needs {width} GPUs, there are {gpus}")
    for n, role in enumerate(roles):
        out[f"{topology}.{letters[role]}{roles[:n].count(role)}"] = {"role": role, "gpus": [(n * width + i) % gpus for i in range(width)]}
    return out


# GiB of an engine beside its KV cache: the weights, and what vLLM and its graphs take on each GPU.
WEIGHTS = {"qwen3-0.6b": 1.5, "qwen3-8b": 15.3, "llama-3.1-8b": 15.0, "llama-3.3-70b": 131.5}
BESIDE = 3.5


def crowded(specs, model, memory):
    """The GPUs whose memory, in GiB, does not hold their engines, in words. An engine without a size of its cache takes
    what is left, and one that does not fit fails only after minutes."""
    need = {}
    for s in specs.values():
        for g in s["gpus"]:
            need[g] = need.get(g, 0) + WEIGHTS[model] / len(s["gpus"]) + BESIDE + int(s.get("kv", "0G").removesuffix("G"))
    return [f"GPU {g} has {memory[g]:.0f} GiB, and its engines need {n:.0f}" for g, n in sorted(need.items()) if n > memory[g]]


def gpu_memory():
    """GiB of each GPU."""
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
    return [int(mib) / 1024 for mib in out.stdout.split()]


class Process:
    """A child in a session of its own, so that its whole tree can be ended."""

    def __init__(self, name, argv, log, env=None):
        self.name, self.argv, self.log = name, argv, log
        with open(log, "ab") as out:
            self.child = subprocess.Popen(
                argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env, start_new_session=True)
        self.pid = self.child.pid

    def alive(self):
        return self.child.poll() is None

    def signal(self, number):
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def tail(self, lines=25):
        with open(self.log, errors="replace") as f:
            return "".join(f.readlines()[-lines:])


class Running:
    """An engine that another rig has started, and ends."""

    def __init__(self, pid):
        self.pid = pid

    def alive(self):
        return os.path.exists(f"/proc/{self.pid}")

    def signal(self, number):
        os.killpg(self.pid, number)

    def tail(self):
        return "its log is the other rig's"


def end(processes, grace=8):
    """Ends the processes and their children: TERM, then KILL for what is left after grace seconds."""
    for p in processes:
        p.signal(signal.SIGTERM)
    until = time.time() + grace
    while time.time() < until and any(p.alive() for p in processes):
        time.sleep(0.1)
    for p in processes:
        p.signal(signal.SIGKILL)
        p.child.wait()


def vllm_command(spec, port, side, defaults, place):
    """The argv and the further environment of the vLLM server that stands at this place in its plan."""
    models, model = os.environ["MODELS"], defaults["model"]
    argv = [
        os.environ["PY"], "-m", "vllm.entrypoints.cli.main", "serve", f"{models}/{model}", "--served-model-name", model,
        "--host", HOST, "--port", str(port), "--load-format", "dummy", "--dtype", "bfloat16", "--seed", "0",
        "--max-model-len", str(defaults["length"]), "--attention-backend", "FLASH_ATTN", "--enable-prompt-tokens-details"]
    if spec.get("block"):
        argv += ["--block-size", str(spec["block"])]
    if spec.get("kv"):
        # With a fixed size of the cache vLLM measures no free memory, so engines of one GPU may start together.
        argv += ["--kv-cache-memory-bytes", spec["kv"], "--gpu-memory-utilization", "0.05"]
    if spec.get("blank"):
        argv += ["--tokenizer", f"{models}/blank"]
    if len(spec["gpus"]) > 1:
        argv += ["--tensor-parallel-size", str(len(spec["gpus"]))]
    # A cache of compiled graphs for each place: engines start together, and would write to the same files. The next
    # plan finds what the last one compiled.
    env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, spec["gpus"])), "VLLM_CACHE_ROOT": f"{os.environ['VLLM_CACHE_ROOT']}/{place}"}
    env |= spec.get("env", {})
    if spec["role"] != "plain":
        transfer = {"kv_connector": "NixlConnector", "kv_role": KV_ROLES[spec["role"]]}
        if spec.get("transfer"):
            transfer["kv_connector_extra_config"] = spec["transfer"]
        argv += ["--kv-transfer-config", json.dumps(transfer)]
        env |= {"VLLM_NIXL_SIDE_CHANNEL_HOST": HOST, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side)}
    return argv + spec.get("args", []), env


def sim_command(xpyd, spec, port, side, defaults, profile):
    # A simulated engine of the role both has no connector, and one of the role prefill serves each leg.
    role = {"plain": "both", "both": "prefill"}.get(spec["role"], spec["role"])
    argv = [xpyd, "sim", "--role", role, "--listen", f"{HOST}:{port}", "--side-channel", f"{HOST}:{side}", "--model",
            defaults["model"], "--max-model-len", str(defaults["length"])]
    if not profile:
        return argv + ["--fast", "--token-latency", "1ms"], {}
    # A token of Qwen3-8B in bf16 has 144 KiB of KV, so 24 GiB hold 174,720 of them in blocks of 128.
    block, gib = spec.get("block", 16), int(spec.get("kv", "24G").removesuffix("G"))
    return argv + ["--profile", profile, "--block-size", str(block), "--num-blocks", str((gib << 20) // (144 * block))], {}


class Fleet:
    """All engines of a plan, and the proxies of its contenders. A proxy stays once it is started: what it
    has learned of its engines is part of what is measured."""

    def __init__(self, xpyd, run_dir, defaults, dry, profile=None):
        self.xpyd, self.dir, self.defaults, self.dry, self.profile = xpyd, run_dir, defaults, dry, profile
        self.simulated = dry or bool(profile)
        self.engines, self.urls, self.proxies = {}, {}, {}

    def start(self, specs):
        for place, (name, spec) in enumerate(specs.items()):
            port, side = free_port(), free_port()
            if self.simulated:
                argv, more = sim_command(self.xpyd, spec, port, side, self.defaults, self.profile)
            else:
                argv, more = vllm_command(spec, port, side, self.defaults, place)
            self.urls[name] = f"http://{HOST}:{port}"
            self.engines[name] = Process(name, argv, f"{self.dir}/{name}.log", os.environ | more)

    def wait(self, limit):
        """Waits for every engine. What is returned are the seconds that each took, and the ends of the logs
        of those that died or were late. These are given up: the steps without them can still be taken."""
        begin, took, lost = time.time(), {}, {}
        for name, p in list(self.engines.items()):
            while not self.healthy(name):
                if not p.alive() or time.time() - begin > limit:
                    lost[name] = f"{'late' if p.alive() else 'died'}: {p.tail(60)}"
                    end([self.engines.pop(name)])
                    del self.urls[name]
                    break
                time.sleep(0.25)
            else:
                took[name] = round(time.time() - begin, 1)
        return took, lost

    def healthy(self, name):
        try:
            get(self.urls[name] + "/health", 2)
            return True
        except OSError:
            return False

    def attach(self, path, specs):
        """Takes engines that run already, in place of starting those of specs: each is the one on the same GPUs."""
        with open(path) as f:
            running = json.load(f)
        for name, spec in specs.items():
            found = [e for e in running if e["gpus"] == spec["gpus"] and e["role"] == spec["role"]]
            if not found:
                raise SystemExit(f"{path} has no engine of the role {spec['role']} on the GPUs {spec['gpus']}")
            self.urls[name] = found[0]["url"]
            self.engines[name] = Running(found[0]["pid"])

    def describe(self, path, specs):
        """Writes what attach reads."""
        rows = [{"name": n, "url": self.urls[n], "pid": p.pid, "gpus": specs[n]["gpus"], "role": specs[n]["role"]} for n, p in self.engines.items()]
        with open(path + ".new", "w") as f:
            json.dump(rows, f, indent=1)
        os.replace(path + ".new", path)

    def serve(self, name, contender):
        """The URL of the contender, whose proxy is started unless it runs."""
        wanted = used(contender)
        if missing := [e for e in wanted if e not in self.urls]:
            raise RuntimeError(f"{name} needs engines that are not up: {missing}")
        if contender.get("direct"):
            return self.urls[contender["direct"]]
        if name not in self.proxies:
            port, admin = free_port(), free_port()
            argv = proxy_command(self.xpyd, contender, self.urls, port, admin)
            proxy = Process(name, argv, f"{self.dir}/proxy-{name}.log")
            proxy.url, proxy.admin = f"http://{HOST}:{port}", f"http://{HOST}:{admin}"
            self.proxies[name] = proxy
            self.await_proxy(proxy, contender)
        return self.proxies[name].url

    def await_proxy(self, proxy, contender, limit=30):
        ready = proxy.url + "/health" if contender.get("router") else proxy.admin + "/readyz"
        until = time.time() + limit
        while True:
            try:
                get(ready, 2)
                break
            except OSError as e:
                if not proxy.alive() or time.time() > until:
                    raise RuntimeError(f"proxy {proxy.name}: {e}\n{proxy.tail()}") from e
                time.sleep(0.1)
        time.sleep(0.2 if self.dry else 2)  # the warm-ups of the pairs

    def ask_proxy(self, name, path):
        """What the contender's proxy answers on its admin port, or nothing where it has none."""
        try:
            return get(self.proxies[name].admin + path)
        except (OSError, KeyError):
            return ""

    def stop(self):
        end(list(self.proxies.values()), 3)
        end([p for p in self.engines.values() if isinstance(p, Process)])


def used(contender):
    """The engines of a contender. Those under engines have no role."""
    if "direct" in contender:
        return [contender["direct"]]
    return contender.get("prefill", []) + contender.get("decode", []) + contender.get("engines", [])


def proxy_command(xpyd, contender, urls, port, admin):
    prefill, decode, roleless = ([urls[e] for e in contender.get(pool, [])] for pool in ("prefill", "decode", "engines"))
    if router := contender.get("router"):
        router = os.path.expandvars(router)
        launch = [sys.executable, router] if router.endswith(".py") else [router]
        argv = launch + ["--vllm-pd-disaggregation", "--policy", "round_robin", "--host", HOST, "--port", str(port),
                "--prometheus-host", HOST, "--prometheus-port", str(admin)]
        return argv + [x for u in prefill for x in ("--prefill", u)] + [x for u in decode for x in ("--decode", u)]
    argv = [xpyd, "serve", "--listen", f"{HOST}:{port}", "--admin", f"{HOST}:{admin}", "--health-slow-start", "0s"]
    for flag, pool in (("--prefill", prefill), ("--decode", decode), ("--engine", roleless)):
        argv += [flag, ",".join(pool)] if pool else []
    if prefill or roleless:
        argv += ["--pd-mode", contender.get("mode", "always")]
    return argv + contender.get("args", [])
